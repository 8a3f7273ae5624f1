"""Base class of the soft estimators: training, prediction, recalibration, files."""

from __future__ import annotations

import copy
import os
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from sstorch._types import FloatArray, IntArray
from sstorch.base import CurveKind, Times, check_alive, check_times, median_event_time
from sstorch.checks import check_after, check_device, wording
from sstorch.data import OutcomeType, Preprocessor, Schema, SurvivalData
from sstorch.data.coded import RowFeatures
from sstorch.data.fingerprint import fingerprint
from sstorch.data.oddities import few_events
from sstorch.data.oddity import Oddity, tell
from sstorch.data.persons import CONSTANT_COVARIATES
from sstorch.data.time_unit import check_time_unit, round_horizons
from sstorch.data.training_record import TrainingRecord
from sstorch.deploy import Deployable, Deployed, Formula
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.files import read_folder, reading, write_folder, write_whole
from sstorch.fitted import FittedTree
from sstorch.fitted.program import export_program
from sstorch.fitted.tree import leaves_of_state
from sstorch.groups.competing_validation import CompetingGroupValidation
from sstorch.groups.hooks import RESULTS, CardFacts, GroupedTree, LeafOf
from sstorch.groups.recalibration import Recalibrate, Recalibration
from sstorch.groups.resampling import Partition, resamples
from sstorch.groups.table import (
    frame_of_state,
    frame_state,
    groups_text,
    incidence_lines,
    incidence_table,
    table_of,
    usual_horizons,
)
from sstorch.groups.validation import GroupValidation
from sstorch.groups.without_events import groups_without_events
from sstorch.inference import FitCovariance, honest_text, term_facts
from sstorch.inference.coefficients import terms
from sstorch.inference.model import covariance_of, no_covariance
from sstorch.metrics.weights import WeightKind
from sstorch.monitoring import History, ProgressBar
from sstorch.nn import Prediction, SoftTree
from sstorch.optim import Checkpoint
from sstorch.parameters import NestedParameters
from sstorch.reading import Explanation
from sstorch.reading.explain import explain_row
from sstorch.reading.hooks import ReadableTree
from sstorch.reading.html import tree_html
from sstorch.reading.nodes import longer_sides, shown_leaves, times_of_nodes
from sstorch.reading.rules import GateRule
from sstorch.reading.sentences import condition_line, contrast_lines, group_sentences
from sstorch.reading.texts import describe_tree, effect_lines, events_text, held_out_text
from sstorch.soft.batch import TrainedBatch, train_batch, train_encoded, training_rows
from sstorch.soft.estimation import GroupChoice
from sstorch.soft.formula import deployed, tree_formula
from sstorch.soft.honest import Honest, count_subjects, halves
from sstorch.soft.parameters import Columns, Penalties
from sstorch.soft.recalibration import recalibrated
from sstorch.soft.settings import BatchSettings, as_json
from sstorch.soft.step_curves import step_curves
from sstorch.soft.tree_sample import TreeSample, leaves_of_splits, partition

FORMAT_VERSION = 6
CARD = "MODEL_CARD.md"
SHRUNK = "Coefficients are shrunk; their confidence intervals take the gates as given."
# Parameters that say how to train, not what was trained.
_NOT_SAVED = ("trainer", "teacher", "random_state", "verbose", "device", "leaf")


class SoftEstimator(NestedParameters, GroupedTree, Deployable, ReadableTree):
    """Base class of the estimators that predict with a soft tree.

    Attributes:
        tree_: the trained :class:`~sstorch.fitted.FittedTree`: the hazard of every cause under shared gates,
            with the preprocessing of the rows.
        history_: records of the training of the start that was kept, by cause where causes compete.
        objective_: its training objective; of competing causes their sum.
        gate_subjects_: number of subjects that placed the gates and did not estimate the hazards, with a
            teacher ``Honest()``, whose tables are of the other rows; 0 where the same rows did both.
        time_unit_: unit of the times; None if not known.
        time_varying_: whether it was trained on subjects with several rows, whose covariates change.
        node_table_: training rows, events and survival, predicted and by Kaplan-Meier, of each node, by heap
            number.
        covariance_: :class:`~sstorch.inference.FitCovariance` of the coefficients, of which
            :mod:`sstorch.inference` makes standard errors and intervals.
        training_rows_: fingerprint of the training rows, by which :func:`~sstorch.validate` recognises them.
        late_fit_: groups whose mean curve leaves the 95 % band of Kaplan-Meier late in follow-up, a sentence
            each, with time and remedy; `summary()` has them.
        choice_: :class:`~sstorch.soft.estimation.GroupChoice`, where penalties were estimated, else None: the
            evidence of the regression and of each set of groups, ``penalties`` and ``terms`` with effective
            degrees of freedom.
        training_record_: distributions of the columns in the training rows, for
            :func:`sstorch.validation.drift`.
        metrics_: scores by name that are to be kept with the model, such as those of a cross-validation.
        held_out_: how well models with these parameters predict held-out rows, as lines for :meth:`summary`;
            a run of the command ``sstorch`` sets it, a fit does not.
        feature_names_in_: raw feature names.
        n_features_in_: their number.
    """

    _format: ClassVar[str]
    _title: ClassVar[str]
    _penalties: ClassVar[type[Penalties]]

    tree_: FittedTree
    history_: History | Mapping[str, History]
    objective_: float
    gate_subjects_: int
    choice_: GroupChoice | None
    metrics_: dict[str, float]
    held_out_: tuple[str, ...]
    training_record_: TrainingRecord
    time_unit_: str | None
    recalibration_: Recalibration | Mapping[str, Recalibration]

    penalties: Penalties
    columns: Columns
    device: str
    random_state: int | np.random.RandomState | None
    time_unit: str | None
    verbose: int

    @abstractmethod
    def _batch_settings(self) -> BatchSettings:
        """The checked parameters, as the batch trainer takes them.

        Raises:
            ConfigError: a value does not exist or is out of range.
        """

    def _shared_settings(self) -> dict[str, Any]:
        """Settings that follow from the parameters of every soft estimator."""
        if not isinstance(self.columns, Columns):
            raise ConfigError(f"columns must be Columns(...), got {self.columns!r}")
        check_time_unit(self.time_unit)
        return {
            **self._penalties.of(self.penalties).settings,
            **self.columns.settings,
            "device": self.device,
            "dtype": self.dtype,
            "seed": self._seed(),
        }

    # ------------------------------------------------------------------ fit

    def fit(
        self, X: object, y: object = None, sample_weight: object = None, *, sensitive: object = None
    ) -> Self:
        """Train the model.

        Args:
            X: as of :meth:`SoftSurvivalTree.fit <sstorch.SoftSurvivalTree.fit>`.
            y: likewise, or :class:`~sstorch.Surv` with ``causes``.
            sample_weight: likewise.
            sensitive: likewise.

        Raises:
            DataError: the data cannot be used; the message names column, rows and remedy.
            ConfigError: a parameter has a value that does not exist.
        """
        return self._fit_data(training_rows(X, y, sample_weight, sensitive))

    def _fit_data(
        self,
        data: SurvivalData,
        schema: Schema | None = None,
        checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    ) -> Self:
        """``fit`` to rows of positive weight.

        Args:
            data: rows.
            schema: columns and vocabulary; taken from the rows if None.
            checkpoint: file that is written after every pass of the training.
        """
        data = data.joined()  # as the batch does, whose encoded rows are these
        settings = self._training_settings(data)
        if data.causes is not None:
            _warn_of_rare_causes(data)
        callbacks = [ProgressBar()] if self.verbose else []
        batch, x = train_encoded([data], settings, schema, callbacks, checkpoint)
        self.gate_subjects_ = 0
        if isinstance(settings.teacher, Honest):
            known = fingerprint(data)
            placing, data = halves(data, settings.seed)
            self.gate_subjects_ = count_subjects(placing)
        self._adopt_best(batch, data, 0, x[0])
        if self.gate_subjects_:
            self.training_rows_ = known  # rows that placed gates are no test rows either
        self._fitted_with(settings, data, x[0])
        return self

    def _adopt_best(self, batch: TrainedBatch, data: SurvivalData, split: int, x: RowFeatures) -> Self:
        """Take over the chosen start of a split, with the tables of its training rows.

        Args:
            batch: trained trees.
            data: training rows of the split, :meth:`~sstorch.SurvivalData.joined`.
            split: number of the split.
            x: the same rows, encoded, shape (n, p).
        """
        self._adopt(batch, data, split, batch.best_start(split), x=x)
        self.training_record_ = TrainingRecord.of(data.frame)
        self.covariance_ = replace(batch.covariance, terms=term_facts(self.tree_.preprocessor, data.frame))
        self._warn_of_step_curves(data, x)
        tell(groups_without_events(self.tree_.apply(x), data), strict=False, stacklevel=4)
        if data.causes is None:
            self._make_node_table(x)
            return self
        of_nodes, horizons = times_of_nodes(self.tree_, self.event_times_), usual_horizons(self)
        times = np.union1d(of_nodes, horizons)  # one quadrature for both tables
        found = self.tree_.incidence(x, times)
        self._make_node_table(x, found[..., np.searchsorted(times, of_nodes)])
        predicted = found[..., np.searchsorted(times, horizons)]
        self.group_table_ = incidence_table(self.tree_.apply(x), predicted, data, horizons)
        return self

    def _training_settings(self, data: SurvivalData) -> BatchSettings:
        """The settings by which the rows are trained on."""
        return self._batch_settings()

    def _fitted_with(self, settings: BatchSettings, data: SurvivalData, x: RowFeatures) -> None:
        """Take over what else the training has given; ``x`` are the encoded rows (n, p)."""

    def _adopt(
        self,
        batch: TrainedBatch,
        data: SurvivalData,
        split: int,
        start: int,
        setting: int = 0,
        x: RowFeatures | None = None,
    ) -> Self:
        """Take over one tree of a trained batch.

        Its ``node_table_`` is made when it is first looked at, for which the rows are held until then.

        Args:
            batch: trained trees.
            data: training rows of the split.
            split: number of the split.
            start: number of the start.
            setting: position of its coefficients in ``batch.coefficients``.
            x: the rows, encoded, if they are at hand; shape (n, p).
        """
        position = batch.position(split, start, setting)
        self.objective_ = float(batch.objective[position])
        self.choice_ = batch.choices[position] if batch.choices else None
        histories = {name: history.of_problem(position) for name, history in batch.histories.items()}
        self.history_ = histories if data.causes is not None else histories[next(iter(histories))]
        self.event_times_ = data.event_times
        self.zero_time_ = data.zero_time
        self.outcome_type_ = data.outcome_type
        self.horizon_ = median_event_time(data)
        self.time_varying_ = data.time_varying
        self.time_unit_ = check_time_unit(self.time_unit) or data.time_unit
        self.feature_names_in_ = np.asarray(data.feature_names, dtype=object)
        self.n_features_in_ = len(data.feature_names)
        self.metrics_ = {}
        for name in (
            *RESULTS,
            "held_out_",
            "group_table_",
            "recalibration_",
            "covariance_",
        ):  # those of another tree
            self.__dict__.pop(name, None)
        tree = batch.fitted(split, start, setting, self._prediction)
        self.tree_ = replace(tree, time_unit=self.time_unit_, time_varying=self.time_varying_)
        self._read_later(data)
        if x is not None:
            self._number_groups(x)
        return self

    @property
    def _prediction(self) -> Prediction:
        return "hbp"

    def _number_groups(self, x: RowFeatures) -> None:
        data = self._training_rows
        self.tree_ = self.tree_.numbered(x, data.sample_weight, float(data.nominal_time.max()))

    @property
    def _tree(self) -> FittedTree:
        """The trained tree, its groups numbered.

        Raises:
            sklearn.exceptions.NotFittedError: there is none yet.
        """
        check_is_fitted(self, "tree_")
        if self.tree_.groups is None:
            self._number_groups(self.tree_.encode(self._training_rows.frame))
        return self.tree_

    @property
    def module_(self) -> SoftTree:
        """The trained :class:`~sstorch.nn.SoftTree`, without batch dimension; of the first cause."""
        return self._tree.module

    @property
    def preprocessor_(self) -> Preprocessor:
        """Fitted on the training rows."""
        return self._tree.preprocessor

    def _warn_of_step_curves(self, data: SurvivalData, x: RowFeatures) -> None:
        """Name leaves of which new rows would be all but impossible, in a DataWarning each.

        Args:
            data: the training rows.
            x: the same rows, encoded, shape (n, p).
        """
        for name in self._tree.causes:
            tree = self._tree.of_cause(name)
            rows = data if data.causes is None else data.of_cause(name)
            tell(step_curves(tree, x, rows), strict=False, stacklevel=4)

    # ------------------------------------------------------------------ predict

    def _fitted_html(self) -> str:
        if not hasattr(self, "event_times_"):
            return ""
        return tree_html(self._tree, self.node_table_, self._gate_rules, self._title)

    def _formula(self, level: float | None = None) -> Formula:
        return tree_formula(self._tree, None if level is None else covariance_of(self), level)

    @override
    def _no_limits(self) -> str:
        if self._tree.prediction != "hbp":
            return "intervals need predictions by one group: use prediction='hbp'"
        return no_covariance(self)

    def _deployed(self, medians: bool) -> Deployed:
        return deployed(self._tree, self.node_table_, self._gate_rules, medians)

    @override
    def _write_program(self, path: Path, after: float | None) -> None:
        export_program(self._tree, path, self.event_times_, after)

    def predict(self, X: object, cause: int | str = 1) -> FloatArray:
        """Risk of each row, higher for an earlier event.

        Args:
            X: rows with the training columns.
            cause: where causes compete, by number, 1 .. K, or by name.

        Returns:
            Expected number of events, shape (n,), the sum of H(t | x) over the distinct training event times
            (over more than 4096 by a quadrature of 512 terms, to about seven digits); or where causes compete
            the cumulative incidence of the cause at ``horizon_``.

        Raises:
            ConfigError: there is no such cause, or causes compete and the model has time-varying covariates.
        """
        tree = self._tree
        if tree.competing:
            return self._risk_of(X, cause)
        return tree.risk(self._encode_new(X), self.event_times_)

    @overload
    def predict_hazard_function(
        self,
        X: object,
        times: Times = None,
        as_frame: Literal[False] = False,
        *,
        after: npt.ArrayLike | None = None,
    ) -> FloatArray: ...

    @overload
    def predict_hazard_function(
        self,
        X: object,
        times: Times = None,
        *,
        as_frame: Literal[True],
        after: npt.ArrayLike | None = None,
    ) -> pd.DataFrame: ...

    def predict_hazard_function(
        self,
        X: object,
        times: Times = None,
        as_frame: bool = False,
        *,
        after: npt.ArrayLike | None = None,
    ) -> FloatArray | pd.DataFrame | npt.NDArray[np.object_]:
        """Hazard h(t | x) per time unit; arguments and shape as :meth:`predict_survival_function`."""
        return self._predict_curves("hazard", X, times, as_frame, after=after)

    def predict_leaf_proba(self, X: object) -> FloatArray:
        """Probability of each group, shape (n, L), in the order of their numbers; rows sum to one."""
        return self._tree.leaf_probability(self._encode_new(X))

    def apply(self, X: object) -> IntArray:
        """Group of each row, 1 .. L in the order of prognosis (1 = longest survival), shape (n,)."""
        return self._tree.apply(self._encode_new(X))

    def predict_quantile(
        self,
        X: object,
        q: float = 0.5,
        after: npt.ArrayLike | None = None,
        *,
        extrapolate: bool = False,
    ) -> FloatArray:
        """Time by which a share ``q`` has had the event; the median by default.

        Args:
            X: rows with the training columns.
            q: in (0, 1).
            after: time at which the rows are known to be alive, or one for each row, (n,); what is left from
                there is then returned.
            extrapolate: return times beyond the last training event, where no data support the curve, as the
                family of the leaves has them; they are +inf by default, as the Kaplan-Meier estimate has
                them.

        Returns:
            shape (n,), original units; +inf where the survival function stays above 1 - q.

        Raises:
            ConfigError: ``q`` is not in (0, 1).
            DataError: by the model nobody like a row lives until ``after``.
        """
        self._refuse_unknown_future(after)
        x = self._encode_new(X)
        return self._tree.quantile(x, q, self._alive(x, after), extrapolate)

    def predict_rmst(self, X: object, tau: float, after: npt.ArrayLike | None = None) -> FloatArray:
        """Restricted mean survival time: the area under S(t | x) from 0 to ``tau``.

        Args:
            X: rows with the training columns.
            tau: > 0, original units; ``math.inf`` gives the mean, an extrapolation far beyond most follow-up.
            after: as in :meth:`predict_quantile`: the mean of what is left, of which ``tau`` counts as much.

        Returns:
            shape (n,), original units; +inf where ``tau`` is and the mean does not exist.

        Raises:
            ConfigError: ``tau`` is not positive.
            DataError: by the model nobody like a row lives until ``after``.
        """
        self._refuse_unknown_future(after)
        x = self._encode_new(X)
        return self._tree.restricted_mean(x, tau, self._alive(x, after))

    def _alive(self, x: RowFeatures, after: npt.ArrayLike | None) -> FloatArray | None:
        """Times at which rows are alive, (n,), checked; None if not given."""
        if after is None:
            return None
        times = check_after(after, len(x))
        check_alive(-self._tree.curves(x, times[:, None], "cumulative_hazard")[:, 0], times)
        return times

    def log_likelihood(self, X: object, y: object, sample_weight: object = None) -> float:
        """Mean log-likelihood per row, c log h(t | x) - H(t | x) + H(entry | x), in original units.

        Of an event within an interval it is log(S(lower | x) - S(upper | x)) + H(entry | x); of competing
        causes the sum over causes.

        Args:
            X: rows with the training columns.
            y: their outcome, as in ``fit``.
            sample_weight: (n,), >= 0; the mean is weighted.

        Raises:
            DataError: the data cannot be used, or the outcome lacks what that of training had.
        """
        data = self._scored(X, y, sample_weight)
        return self._tree.log_likelihood(self._encode(data.frame), data)

    # ------------------------------------------------------------------ trust

    def _recalibrated(self, data: SurvivalData, how: Recalibrate, weights: WeightKind) -> Self:
        """Copy of the model, recalibrated on rows of positive weight; see :func:`sstorch.recalibrate`."""
        tree, hazards = self._tree, {}
        reports: dict[str, Recalibration] = {}
        for name in tree.causes:
            rows = data if data.causes is None else data.of_cause(name)
            try:
                hazards[name], reports[name] = recalibrated(tree.of_cause(name), rows, how, weights)
            except DataError as error:
                raise DataError(f"cause {name}: {error}" if tree.competing else str(error)) from error
        new, rules = copy.copy(self), self._gate_rules
        for name in (*RESULTS, "held_out_", "group_table_", "covariance_"):
            new.__dict__.pop(name, None)
        new.tree_ = replace(tree, hazards=hazards)
        new.recalibration_ = reports if tree.competing else reports[tree.causes[0]]
        new._read_later(data)
        new._make_node_table()
        if tree.competing:
            new.group_table_ = table_of(new, data.joined(), weights=weights)
        new._gate_rules = rules  # digits as the training rows ask for them: gates are the same
        return new

    @property
    def _can_divide(self) -> bool:
        return self._batch_settings().depth > 0

    @property
    def _unit_of_time(self) -> str | None:
        return self._tree.time_unit

    def _leaf_of(self, frame: pd.DataFrame) -> IntArray:
        return self._tree.group_of(frame)

    def _predicted(self, frame: pd.DataFrame, times: FloatArray) -> FloatArray:
        tree = self._tree
        x = tree.encode(frame)
        return tree.incidence(x, times) if tree.competing else tree.curves(x, times)

    @property
    def _event_counts(self) -> str:
        """Events among the training rows, of competing causes by name, as text."""
        if self._tree.competing:
            table = self.group_table_
            return ", ".join(f"{table[f'events {name}', ''].sum()} {name}" for name in self.causes_)
        return f"{self.node_table_['events'].iloc[0]:.0f} events"

    def _card(self) -> CardFacts:
        tree, nodes = self._tree, self.node_table_
        preprocessor = tree.preprocessor
        curved = dict.fromkeys(f.columns[0] for f in preprocessor.leaf_features if f.kind == "curve")
        families = dict.fromkeys(module.family.name for module in tree.hazards.values())
        leaves = f"{' and '.join(families)} leaves"
        missing = f"numbers: {preprocessor.numeric}; categories: {preprocessor.categorical}"
        return CardFacts(
            title="A soft survival tree",
            kind=f"soft survival tree, depth {tree.module.topology.depth}, {leaves}",
            rows=int(nodes["rows"].iloc[0]),
            events=self._event_counts,
            groups=incidence_lines(self.group_table_) if tree.competing else self.describe().splitlines(),
            rules=self._export_text(4),
            more=[
                ("curves", ", ".join(curved) if curved else "none, effects are straight lines"),
                ("missing values", missing),
            ],
            limits=[
                f"Coefficients are shrunk; intervals are {self._other_gates}."
                if self._other_gates
                else SHRUNK
            ],
            beyond="; beyond it curves are extrapolated",
        )

    def _partition(self, frame: pd.DataFrame) -> Partition:
        return partition(self._tree, self._tree.encode(frame))

    def _resampled(self, data: SurvivalData, n_resamples: int) -> TreeSample:
        settings = self._batch_settings()
        splits, draws = resamples(data, n_resamples, settings.seed)
        return TreeSample.of_splits(
            train_batch(splits, settings, Schema.of(data.frame)), self._prediction, draws
        )

    def _trained(self, data: SurvivalData, splits: list[SurvivalData]) -> list[LeafOf]:
        batch = train_batch(splits, self._batch_settings(), Schema.of(data.frame))
        return leaves_of_splits(batch, self._prediction)

    def falling_curves(self, X: object, times: npt.ArrayLike) -> FloatArray:
        """Survival curves as scores need them, (n, n_times), times increasing.

        They are those of :meth:`predict_survival_function`. Only unconstrained splines can rise; where they
        do, the curve is replaced by its smallest value up to each of the times, and a DataWarning says for
        how many rows.
        """
        curves = self._tree.curves(self._encode(X), check_times(times))
        if not self._tree.can_rise:
            return curves
        falling = np.minimum.accumulate(curves, axis=1)
        if n_rising := int((falling < curves).any(axis=1).sum()):
            warnings.warn(
                f"{n_rising} of {len(curves)} curves rise: scored as their running minimum; "
                "monotone=True has no such curves",
                DataWarning,
                stacklevel=3,
            )
        return falling

    @property
    def _schema(self) -> Schema:
        return self._tree.preprocessor.schema

    def _encode(self, X: object) -> RowFeatures:
        return self._tree.encode(self._cleaned(X))

    def _encode_new(self, X: object) -> RowFeatures:
        """Encoded features of rows to be predicted; a DataWarning names values far outside their range."""
        tree = self._tree
        if (few := tree.encode_few(X)) is not None:
            return few
        frame = self._cleaned(X)
        with wording(rows=X):
            tree.preprocessor.warn_of_far_values(frame)
            return tree.encode(frame)

    def _curves(self, kind: CurveKind, X: object, times: FloatArray) -> FloatArray:
        return self._tree.curves(self._encode_new(X), times, kind)

    def _incidences(self, X: object, times: FloatArray) -> FloatArray:
        tree = self._tree
        if not tree.competing:
            return super()._incidences(X, times)
        return tree.incidence(self._encode_new(X), times)

    def _curves_after(self, kind: CurveKind, X: object, times: FloatArray, after: FloatArray) -> FloatArray:
        if self._tree.can_rise:
            raise ConfigError("what is left after a time needs curves that cannot rise: use monotone=True")
        x, later = self._encode_new(X), after[:, None] + times
        gone = self._tree.curves(x, after[:, None], "cumulative_hazard")
        check_alive(-gone[:, 0], after)
        if kind == "hazard":
            return self._tree.curves(x, later, kind)
        left = self._tree.curves(x, later, "cumulative_hazard") - gone
        return np.exp(-left) if kind == "survival" else left

    # ------------------------------------------------------------------ read

    def describe(self, n_terms: int | None = 4) -> str:
        """A sentence for each group: its rule, rows, events, survival at two times and median.

        Estimates are those of the training rows with 95 % confidence limits: Kaplan-Meier, Aalen-Johansen of
        each cause where they compete, Turnbull (without limits) where times are intervals. There is no
        median where covariates are time-varying. Groups are those that have training rows, in the order of
        prognosis, with the numbers of ``apply``.

        Args:
            n_terms: terms of a rule that are written out, those with the largest effects; None for all.
        """
        lines = group_sentences(self._tree, self.node_table_, self._gate_rules, n_terms)
        lines += [f"Groups are {gates}."] if (gates := self._other_gates) else []
        lines += [line] if (line := condition_line(self._tree)) else []
        return "\n".join(lines)

    def explain(self, x: object, cause: int | str = 1) -> Explanation:
        """Path, contributions, and predicted median and survival of one subject.

        With ``prediction="mixture"`` the prediction averages all groups by ``group_probability``, and the
        path is that of the most probable branches all the same.

        Args:
            x: one row: DataFrame or array (1, p).
            cause: where causes compete, whose linear predictor is explained, by number or name; incidences
                are those of all.

        Raises:
            DataError: it is not one row, or columns are missing.
            ConfigError: there is no such cause.
        """
        tree = self._tree
        horizons = round_horizons(self.event_times_, tree.time_unit)
        name = self.causes_[self._number(cause) - 1] if tree.competing else None
        return explain_row(tree, self._cleaned(x), horizons, longer_sides(self.node_table_), name)

    def summary(self, details: bool = False) -> str:
        """The groups with their survival, the effects of covariates within groups, and cautions, as text.

        After the groups stands how well held-out rows are predicted, where a run has scored that.
        Below them whether groups differ on other rows, the corrected groups and their stability, once
        ``validate_groups``, ``group_table`` with resamples and ``stability`` were called.

        Args:
            details: add the tree of rules, the table of the groups with the parameters of their hazards,
                the evidence for them, and the estimated penalties with effective degrees of freedom.
        """
        tree, coefficients = self._tree, self._coefficient_text()
        root = self.node_table_.iloc[0]
        parts = [f"{self._title}: {int(root['rows'])} rows, {events_text(tree, root)}\n{self.describe()}"]
        parts.append(held_out_text(vars(self).get("held_out_", ())))
        effects = coefficients or self._effects_text()
        parts += [effects] if effects else []
        cautions = [*self.late_fit_]
        if self.choice_ is not None and not np.isnan(self.choice_.gain) and not details:
            cautions.append(f"{self.choice_.finding[0].upper()}{self.choice_.finding[1:]}")
        if len(shown_leaves(self.node_table_)) > 1 and not self._other_gates:
            cautions.append(
                "The same rows have placed the gates: differences between groups are too large, and "
                "confidence intervals, which hold given the gates, too narrow (sstorch.validation: "
                "group_table with n_resamples, validate_groups)"
            )
        parts += ["\n".join(["With care", *(f"* {each}" for each in cautions)])] if cautions else []
        if details:
            slopes, same_rows = not coefficients and not effects, not self._other_gates
            parts.append(
                describe_tree(tree, self.node_table_, self._gate_rules, "Details", slopes, same_rows)
            )
            parts += [self.choice_.summary()] if self.choice_ is not None else []
        if "group_validation_" in vars(self):
            parts.append(str(self.group_validation_))
        corrected = "group_table_" in vars(self) and "corrected" in str(list(self.group_table_))
        if "group_table_" in vars(self) and (details or corrected or not tree.competing):
            if self._tree.competing:
                unit = f", t in {self.time_unit_}" if self.time_unit_ else ""
                where = (
                    "of the recalibration"
                    if "recalibration_" in vars(self)
                    else "that estimate the groups"
                    if self._other_gates
                    else "that have placed the gates"
                )
                given = f", from time zero {CONSTANT_COVARIATES}" if self.time_varying_ else ""
                about = f"F(t) is the incidence of a cause{unit}{given}, in the rows {where};\n"
                parts.append(f"{about}model F(t) is the mean prediction")
            parts.append(groups_text(self.group_table_))
        if "stability_" in vars(self):
            parts.append(str(self.stability_))
        reports = vars(self).get("recalibration_")
        if isinstance(reports, Mapping):
            parts += [f"{name}: {report}" for name, report in reports.items()]
        elif reports is not None:
            parts.append(str(reports))
        return "\n\n".join(parts)

    @property
    def _other_gates(self) -> str:
        """Which intervals those of honest groups are; empty of others."""
        return honest_text(getattr(self, "gate_subjects_", 0))

    def _effects_text(self) -> str:
        """Contrasts with confidence intervals, or slopes without where there is no covariance."""
        tree = self._tree
        covariance = vars(self).get("covariance_")
        if covariance is not None and covariance.hazards:
            return "\n".join(contrast_lines(tree, self.node_table_, terms(self)))
        return "\n".join(effect_lines(tree, self.node_table_)).strip()

    def _coefficient_text(self) -> str:
        """Table of coefficients with standard errors for the summary; empty where there is none."""
        return ""

    # ------------------------------------------------------------------ keep

    def save(self, path: str | Path) -> None:
        """Write the fitted model into a folder: ``model.json`` and ``tensors.safetensors``, no pickle.

        ``metrics_``, ``group_validation_`` and ``recalibration_`` go with it. The model card is written
        beside them, ``MODEL_CARD.md``. Not kept are ``trainer``, ``teacher``, ``random_state`` and
        ``verbose``: they say how to train, not what was trained.

        Raises:
            ConfigError: the folder cannot be written, or a leaf is a family that is not in the registry,
                which no file could rebuild.
        """
        tree = self._tree
        state, tensors = tree.state()
        state |= {
            "parameters": self._plain_parameters(),
            "feature_names": [str(name) for name in self.feature_names_in_],
            "zero_time": self.zero_time_,
            "horizon": self.horizon_,
            "outcome_type": self.outcome_type_.to_dict(),
            "objective": self.objective_,
            "node_table": _split_table(self.node_table_),
            "late_fit": list(self.late_fit_),
            "training_rows": self.training_rows_,
            "gate_subjects": getattr(self, "gate_subjects_", 0),  # trees of folds have none
            "gate_rules": [asdict(rule) for rule in self._gate_rules.values()],
            "metrics": {str(name): float(value) for name, value in self.metrics_.items()},
        }
        if "held_out_" in vars(self):
            state["held_out"] = list(self.held_out_)
        if "training_record_" in vars(self):  # trees of folds have none
            state["training_record"] = self.training_record_.to_dict()
        if self.choice_ is not None:
            state["choice"] = self.choice_.to_dict()
        if "covariance_" in vars(self):
            state["covariance"], own = self.covariance_.state()
            tensors |= own
        if "group_validation_" in vars(self):
            state["group_validation"] = self.group_validation_.to_dict()
        if tree.competing and "group_table_" in vars(self):
            state["group_table"] = frame_state(self.group_table_)
        if "recalibration_" in vars(self):
            found = self.recalibration_
            state["recalibration"] = (
                {name: report.to_dict() for name, report in found.items()}
                if isinstance(found, Mapping)
                else found.to_dict()
            )
        write_folder(Path(path), self._format, FORMAT_VERSION, state, tensors)
        # Pages need templates and figures, which a fit does not.
        from sstorch.groups.model_card import model_card

        write_whole(Path(path) / CARD, model_card(self).encode())

    def _plain_parameters(self) -> dict[str, Any]:
        """Parameters as JSON holds them; depth and dtype are those of the fitted tree."""
        values = {
            name: as_json(value)
            for name, value in self.get_params(deep=False).items()
            if name not in _NOT_SAVED
        }
        tree = self._tree
        plain: dict[str, Any] = {
            "penalties": self._penalties.of(self.penalties).to_dict(),
            "columns": self.columns.to_dict(),
            "dtype": str(tree.module.log_time_scale.dtype).removeprefix("torch."),
            "time_unit": self.time_unit_,
        }
        if "depth" in values:
            plain["depth"] = tree.module.topology.depth
        return values | plain

    @classmethod
    def _from_plain(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Inverse of :meth:`_plain_parameters`."""
        return dict(values) | {
            "penalties": cls._penalties.from_dict(values["penalties"]),
            "columns": Columns.from_dict(values["columns"]),
            "time_unit": check_time_unit(values["time_unit"]),
        }

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> Self:
        """Read a model written by :meth:`save`, onto the given device.

        Raises:
            FormatError: files are missing, altered, of another class or of an unknown format version.
            ConfigError: torch does not see the device.
        """
        check_device(device)
        state, tensors = read_folder(Path(path), cls._format, FORMAT_VERSION)
        with reading(Path(path)):
            parameters = cls._from_plain(state["parameters"])
            estimator = cls(leaf=leaves_of_state(state), device=device, **parameters)
            tree = estimator.tree_ = FittedTree.from_state(state, tensors, device)
            estimator.event_times_ = tree.event_times
            estimator.time_unit_, estimator.time_varying_ = tree.time_unit, tree.time_varying
            estimator.zero_time_, estimator.horizon_ = float(state["zero_time"]), float(state["horizon"])
            estimator.outcome_type_ = OutcomeType.from_dict(state["outcome_type"])
            estimator.objective_ = float(state["objective"])
            estimator.node_table_ = _join_table(state["node_table"])
            rules = zip(tree.module.topology.branches, state["gate_rules"], strict=True)
            estimator.training_rows_ = str(state["training_rows"])
            estimator.gate_subjects_ = int(state["gate_subjects"])
            estimator.late_fit_ = tuple(str(text) for text in state["late_fit"])
            estimator._gate_rules = {node: GateRule.from_dict(rule) for node, rule in rules}
            estimator.metrics_ = {str(k): float(value) for k, value in state["metrics"].items()}
            if "held_out" in state:
                estimator.held_out_ = tuple(str(line) for line in state["held_out"])
            if "training_record" in state:
                estimator.training_record_ = TrainingRecord.from_dict(state["training_record"])
            estimator.choice_ = GroupChoice.from_dict(state["choice"]) if "choice" in state else None
            if "covariance" in state:
                estimator.covariance_ = FitCovariance.from_state(state["covariance"], tensors)
            if "group_validation" in state:
                kind = CompetingGroupValidation if tree.competing else GroupValidation
                estimator.group_validation_ = kind.from_dict(state["group_validation"])
            if "group_table" in state:
                estimator.group_table_ = frame_of_state(state["group_table"])
            if "recalibration" in state:
                found = state["recalibration"]
                estimator.recalibration_ = (
                    {name: Recalibration.from_dict(found[name]) for name in tree.causes}
                    if tree.competing
                    else Recalibration.from_dict(found)
                )
            estimator.feature_names_in_ = np.array([str(name) for name in state["feature_names"]], object)
            estimator.n_features_in_ = len(estimator.feature_names_in_)
        estimator.history_ = History()
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        if "_training_rows" in vars(self):  # a file holds the table, not the rows
            self._make_node_table()
        state: dict[str, Any] = super().__getstate__()
        return state

    # ------------------------------------------------------------------ internals

    def _seed(self) -> int:
        """Seed of everything random."""
        try:
            state = check_random_state(self.random_state)
        except ValueError as error:
            raise ConfigError(
                "random_state must be an integer >= 0, None or a numpy RandomState, "
                f"got {self.random_state!r}"
            ) from error
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(state.randint(2**31 - 1))


def _split_table(table: pd.DataFrame) -> dict[str, Any]:
    values = table.astype(object).where(table.notna(), None)
    return {"node": [int(node) for node in table.index], **{str(name): list(values[name]) for name in values}}


def _join_table(columns: dict[str, list[Any]]) -> pd.DataFrame:
    table = pd.DataFrame(columns).set_index("node")
    return table.astype({name: np.float64 for name in table.columns if name not in ("rows", "events")})


def _warn_of_rare_causes(data: SurvivalData) -> None:
    """Warn of each cause with fewer than ten events, or fewer than encoded columns."""
    for name in data.cause_names:
        part = data.of_cause(name)
        told = few_events(part.frame, part.event)
        tell([Oddity(f"cause {name}: {each.text}", each.remedy) for each in told], False, stacklevel=5)
