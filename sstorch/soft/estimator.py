"""Base class of the soft estimators: training, predictions, texts, files."""

from __future__ import annotations

import copy
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from typing_extensions import override

from sstorch._types import FloatArray, IntArray
from sstorch.base import restored
from sstorch.checks import check_device, wording
from sstorch.data import Schema, SurvivalData
from sstorch.data.design_matrix import RowFeatures
from sstorch.data.surv import OutcomeType
from sstorch.data.time_unit import check_time_unit, round_horizons
from sstorch.exceptions import ConfigError, named, warn
from sstorch.files import read_folder, reading, write_folder, write_whole
from sstorch.fitted.estimator import SurvivalEstimator
from sstorch.fitted.tree import FittedTree, leaves_of_state, tree_of_state, tree_state
from sstorch.groups.recalibration import RESULTS, Partition, PartitionOf, Recalibrate, Recalibration
from sstorch.groups.table import groups_without_events
from sstorch.groups.validation import GroupValidation
from sstorch.inference.contrasts import term_facts
from sstorch.inference.covariance import FitCovariance
from sstorch.monitoring import Callback, History, ProgressBar, check_callbacks
from sstorch.reading.effects import Explanation, explain_row
from sstorch.reading.nodes import Reading
from sstorch.soft.batch import TrainedBatch, train_batch, train_encoded
from sstorch.soft.fit_checks import rare_causes, separation
from sstorch.soft.group_choice import GroupChoice
from sstorch.soft.parameters import Columns, Penalties
from sstorch.soft.recalibration import recalibrated
from sstorch.soft.settings import BatchSettings
from sstorch.soft.teacher import Teacher
from sstorch.soft.texts import TreeTexts, partition
from sstorch.threads import one_blas_thread

FORMAT_VERSION = 14
CARD = "MODEL_CARD.md"
# Parameters that say how to train, not what was trained.
_NOT_SAVED = ("trainer", "teacher", "random_state", "verbose", "device", "leaf")
# What a file holds of a fit in addition to the tree, by type; all models have the first ones.
_FITTED: dict[str, Any] = {
    "feature_names_in_": np.ndarray,
    "zero_time_": float,
    "horizon_": float,
    "outcome_type_": OutcomeType,
    "objective_": float,
    "_reading": Reading,
    "metrics_": dict,
    "choice_": GroupChoice | None,
    "covariance_": FitCovariance,
    "group_validation_": GroupValidation,
    "recalibration_": Recalibration | dict,
}
_ALWAYS = list(_FITTED)[:8]


class SoftEstimator(TreeTexts, SurvivalEstimator):
    """Base class of the estimators that predict with a soft tree.

    Attributes:
        tree_: the trained :class:`~sstorch.fitted.FittedTree`: the hazard of every cause under shared gates,
            with the preprocessing of the rows.
        history_: records of the training of the start that was kept, by cause with competing causes.
        objective_: training objective of this start, summed over competing causes.
        time_unit_: unit of the times; None if undefined.
        covariance_: :class:`~sstorch.inference.covariance.FitCovariance` of the coefficients, for standard
            errors and intervals of :mod:`sstorch.inference`.
        choice_: if penalties were estimated :class:`~sstorch.soft.group_choice.GroupChoice`: ``evidence`` of
            the regression and of each set of groups, ``penalties``, ``terms``; else None.
        metrics_: scores by name to be saved with the model, such as those of a cross-validation.
        feature_names_in_: raw feature names.
        n_features_in_: number of raw features.
    """

    _format: ClassVar[str]
    _penalties: ClassVar[type[Penalties]]

    history_: History | Mapping[str, History]
    objective_: float
    metrics_: dict[str, float]
    time_unit_: str | None

    penalties: Penalties
    columns: Columns
    device: str
    dtype: str
    random_state: int | np.random.RandomState | None
    time_unit: str | None
    verbose: int

    @abstractmethod
    def _batch_settings(self) -> BatchSettings:
        """The checked parameters, as the batch trainer takes them."""

    def _shared_settings(self) -> dict[str, Any]:
        """Settings that follow from the parameters of every soft estimator."""
        if not isinstance(self.columns, Columns):
            raise ConfigError(f"columns must be Columns(...), got {self.columns!r}")
        check_time_unit(self.time_unit)
        shared = {"device": self.device, "dtype": self.dtype, "seed": self._seed}
        return {**self._penalties.of(self.penalties).get_params(), **self.columns.get_params(), **shared}

    @property
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

    def fit(
        self,
        X: object,
        y: object = None,
        sample_weight: object = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        sensitive: object = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Train the model; of several starts the best tree is kept.

        Args:
            X: DataFrame (numeric, boolean, categorical or text columns; missing values allowed), or array (n,
                p). Columns that :meth:`Surv.of <sstorch.Surv.of>` used for ``y`` are not features.
            y: :class:`~sstorch.Surv`: right-censored, left-truncated (``entry``), start-stop rows of subjects
                (``entry`` and ``id``; covariates may change from row to row, and folds and resamples keep the
                rows of a subject together), or interval-censored. A right-censored outcome may also be a
                (time, event) tuple, a structured array with an event and a time field, or a DataFrame with
                the columns ``time`` and ``event``.
            sample_weight: (n,), >= 0: sampling weights, such as inverse probabilities of selection. The tree
                and confidence intervals do not depend on their scale; limits use robust variances and the
                effective sample size (sum w)^2 / sum w^2. For counts of observed rows, repeat the rows, as
                with ``X.loc[X.index.repeat(w)]``.
            checkpoint: path of a file that is written after every pass of the training. If it exists, from an
                interrupted call with the same parameters and data, training continues from it and returns the
                same tree, bit for bit on the same machine and threads, on CUDA up to rounding.
            sensitive: group of each row (n,), for ``penalties.fairness``; or the name of a column of ``X``,
                which then is not a feature. To have it as a feature too, give its values:
                ``sensitive=X["sex"]``.
            callbacks: list of :class:`~sstorch.monitoring.Callback`, such as
                :class:`~sstorch.monitoring.TensorBoard`, called after each update of estimated variances
                (``on_round``), or after every step and pass of a trainer, cause by cause; with an offset
                or strata and fixed penalties never.

        Raises:
            DataError: the data are invalid; the message names column, rows and remedy.
            ConfigError: a parameter has an invalid value, or the checkpoint belongs to other parameters, data
                or versions of the software.
            FormatError: the checkpoint is truncated.
            TrainingError: the objective, or a custom penalty, is not finite.

        Warns:
            ConvergenceWarning: (of scikit-learn) training of leaves stopped before the optimum.
        """
        check_callbacks(callbacks)
        data = SurvivalData(X, y, sample_weight=sample_weight, sensitive=sensitive)
        data.warn_of_few_events()
        data, settings = data.followed().joined(), self._batch_settings()
        if isinstance(settings.teacher, Teacher):
            settings = replace(settings, teacher=settings.teacher.fitted_to(data))
        for text in rare_causes(data):
            warn(text)
        callbacks = [*callbacks, *([ProgressBar()] if self.verbose else [])]
        batch, encoded = train_encoded([data], settings, None, callbacks, checkpoint)
        return self._adopt_best(batch, data, 0, encoded.of_split(0))

    @one_blas_thread()
    def _adopt_best(self, batch: TrainedBatch, data: SurvivalData, split: int, x: RowFeatures) -> Self:
        """Take over the chosen start of a split, with the tables of its joined rows, encoded (n, p)."""
        start = batch.best_start(split)
        self._adopt(batch, data, split, start, x=x)
        if not bool(batch.converged[batch.position(split, start)]):
            leaves = ", ".join(dict.fromkeys(tree.family.name for tree in batch.trees.values()))
            warn(
                f"{type(self).__name__} with leaf {leaves} has not converged: coefficients and "
                "predictions are not those of the optimum. Use fewer or less collinear columns, another "
                "leaf, a larger number for ridge, or more iterations of the trainer",
                ConvergenceWarning,
            )
        tree = self.tree_
        self.covariance_ = replace(batch.covariance, terms=term_facts(tree.preprocessor, data.frame))
        for text in groups_without_events(tree.apply(x), data):
            warn(text)
        if (penalties := self._penalties.of(self.penalties)).ridge == 0:
            for text in separation(tree.preprocessor, x, data, penalties.roughness == 0):
                warn(text)
        # Curves before the first entry are extrapolated.
        for text in self.late_fit_ if data.entry.any() else ():
            warn(text)
        return self

    def _adopt(
        self,
        batch: TrainedBatch,
        data: SurvivalData,
        split: int,
        start: int,
        setting: int = 0,
        x: RowFeatures | None = None,
    ) -> Self:
        """Take over one tree of a trained batch; x are its rows, encoded (n, p), if they are available."""
        position = batch.position(split, start, setting)
        self.objective_ = float(batch.objective[position])
        self.choice_ = batch.choices[position] if batch.choices else None
        histories = {name: history.of_problem(position) for name, history in batch.histories.items()}
        self.history_ = histories if data.causes is not None else histories[next(iter(histories))]
        self.event_times_ = data.event_times
        self._set_outcome(data)
        self.time_unit_ = check_time_unit(self.time_unit) or data.time_unit
        self.feature_names_in_ = np.asarray(data.feature_names, dtype=object)
        self.n_features_in_ = len(data.feature_names)
        self.metrics_ = {}
        self._drop_results("recalibration_")
        tree = batch.fitted(split, start, setting, getattr(self, "prediction", "hbp"))
        self.tree_ = replace(tree, time_unit=self.time_unit_, time_varying=self.time_varying_)
        self._read_later(data)
        if x is not None:
            self._number_groups(x)
        return self

    def _drop_results(self, *others: str) -> None:
        """Drop results of another tree, or of other leaves."""
        for name in (*RESULTS, "group_table_", "covariance_", *others):
            self.__dict__.pop(name, None)

    def _recalibrated(self, data: SurvivalData, how: Recalibrate) -> Self:
        """Copy of the model, recalibrated on rows of positive weight; see :func:`sstorch.recalibrate`."""
        tree, hazards = self._tree, {}
        reports: dict[str, Recalibration] = {}
        for name in tree.causes:
            rows = data if data.causes is None else data.of_cause(name)
            with named(f"cause {name}" if tree.competing else ""):
                hazards[name], reports[name] = recalibrated(tree.of_cause(name), rows, how)
        new, rules = copy.copy(self), self._reading.rules
        new._drop_results()
        new.outcome_type_ = replace(self.outcome_type_, weighted=data.uneven_weight is not None)
        new.tree_ = replace(tree, hazards=hazards)
        new.recalibration_ = reports if tree.competing else reports[tree.causes[0]]
        new._read_later(data)
        # Digits of rules are as the training rows ask for them: gates are the same.
        new._reading = replace(new._reading, rules=rules)
        return new

    @property
    def _can_divide(self) -> bool:
        return self._batch_settings().depth > 0

    def _trained(self, data: SurvivalData, splits: list[SurvivalData]) -> list[PartitionOf]:
        settings = self._batch_settings()
        batch = train_batch(splits, settings, Schema.of(data.frame))
        best = ((split, batch.best_start(split)) for split in range(len(splits)))
        return [partial(partition, batch.fitted(*each, prediction=settings.prediction)) for each in best]

    def save(self, path: str | Path) -> None:
        """Write the fitted model into a folder: ``model.json`` and ``tensors.safetensors``, no pickle.

        The folder also has ``metrics_``, ``group_validation_``, ``recalibration_`` and ``MODEL_CARD.md``, but
        not ``trainer``, ``teacher``, ``random_state`` and ``verbose``, which only affect training.

        Raises:
            ConfigError: the folder cannot be written, or a leaf is a family without registration, which
                cannot be loaded.
        """
        state, tensors = tree_state(self._tree)
        self._reading  # noqa: B018 -- made and kept
        values = self.get_params(deep=False) | {
            "penalties": replace(self._penalties.of(self.penalties), fairness=None, rho=0.0, own=()),
            "dtype": str(self.module_.log_time_scale.dtype).removeprefix("torch."),
            "time_unit": self.time_unit_,
        }
        if "depth" in values:
            values["depth"] = self.module_.topology.depth
        state["parameters"] = {name: value for name, value in values.items() if name not in _NOT_SAVED}
        state["fitted"] = {name: vars(self)[name] for name in _FITTED if name in vars(self)}
        write_folder(Path(path), self._format, FORMAT_VERSION, state, tensors)
        # Pages need templates and figures, which a fit does not.
        from sstorch.groups.table import model_card

        write_whole(Path(path) / CARD, model_card(self).encode())

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> Self:
        """Load a model written by :meth:`save` onto the given device.

        Raises:
            FormatError: files are missing, altered, of another class or of an unknown format version.
            ConfigError: torch does not see the device.
        """
        check_device(device)
        state, tensors = read_folder(Path(path), cls._format, FORMAT_VERSION)
        with reading(Path(path)):
            parameters, fitted = state["parameters"], state["fitted"]
            estimator = restored(cls, parameters | {"leaf": leaves_of_state(state), "device": device})
            tree = estimator.tree_ = tree_of_state(state, tensors, device)
            for name, kind in _FITTED.items():
                if name in fitted or name in _ALWAYS:
                    setattr(estimator, name, fitted[name])
                    if not isinstance(fitted[name], kind):
                        raise TypeError(f"{name} is a {type(fitted[name]).__name__}")
            cls._penalties.of(parameters["penalties"])
            estimator.event_times_ = tree.event_times
            estimator.time_unit_, estimator.time_varying_ = tree.time_unit, tree.time_varying
            estimator.n_features_in_ = len(estimator.feature_names_in_)
        estimator.history_ = History()
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        if "_training_rows" in vars(self):  # a file holds the table, not the rows
            self._reading  # noqa: B018 -- made and kept
        state: dict[str, Any] = super().__getstate__()
        return state

    @property
    @override
    def _model(self) -> FittedTree:
        return self._tree

    @property
    def _schema(self) -> Schema:
        return self._tree.preprocessor.schema

    @override
    def _encode(self, X: object, warn: bool = False) -> RowFeatures:
        tree, frame = self._tree, self._cleaned(X)
        with wording(rows=X):
            if warn:
                tree.preprocessor.warn_of_far_values(frame)
            return tree.encode(frame)

    def predict_leaf_proba(self, X: object) -> FloatArray:
        """Predict the probability of each group, shape (n, L), ordered by group number; rows sum to one."""
        return self._tree.leaf_probability(self._encode(X, warn=True))

    def apply(self, X: object) -> IntArray:
        """Return the group of each row, 1 .. L by prognosis (1 = longest survival), shape (n,)."""
        return self._tree.apply(self._encode(X, warn=True))

    def _predicted(self, frame: pd.DataFrame, times: FloatArray) -> FloatArray:
        tree = self._tree
        x = tree.encode(frame)
        return tree.incidence(x, times) if tree.competing else tree.curves(x, times)

    def _partition(self, frame: pd.DataFrame) -> Partition:
        return partition(self._tree, frame)

    def explain(self, x: object, cause: int | str = 1) -> Explanation:
        """Explain the prediction of one subject: path, contributions, predicted median and survival.

        Args:
            x: one row: DataFrame or array (1, p).
            cause: with competing causes, the cause of the explained linear predictor, by number or name.

        Raises:
            DataError: it is not one row, or columns are missing.
            ConfigError: unknown cause.
        """
        tree, number = self._tree, self._number(cause)
        horizons = round_horizons(self.event_times_, tree.time_unit)
        name = self.causes_[number - 1] if tree.competing else None
        return explain_row(tree, self._cleaned(x), horizons, self._reading.longer, name)
