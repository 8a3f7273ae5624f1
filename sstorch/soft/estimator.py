"""Base class of the soft estimators: training and files."""

from __future__ import annotations

import copy
import os
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from sstorch.checks import check_device
from sstorch.data import OutcomeType, Schema, SurvivalData
from sstorch.data.design_matrix import RowFeatures
from sstorch.data.oddities import Oddity, few_events, report
from sstorch.data.time_unit import check_time_unit
from sstorch.exceptions import ConfigError, DataWarning, named
from sstorch.files import read_folder, reading, write_folder, write_whole
from sstorch.fitted.tree import FittedTree, leaves_of_state, tree_of_state, tree_state
from sstorch.groups.recalibration import Recalibration
from sstorch.groups.stability import resamples
from sstorch.groups.table import groups_without_events
from sstorch.groups.tree import RESULTS, PartitionOf, Recalibrate
from sstorch.groups.validation import GroupValidation
from sstorch.inference.covariance import FitCovariance
from sstorch.inference.terms import term_facts
from sstorch.monitoring import Callback, History, ProgressBar
from sstorch.monitoring.callbacks import check_callbacks
from sstorch.parameters import restored
from sstorch.reading.nodes import Reading
from sstorch.soft.batch import train_batch, train_encoded, training_rows
from sstorch.soft.group_choice import GroupChoice
from sstorch.soft.model import SoftModel
from sstorch.soft.parameters import Columns, Penalties
from sstorch.soft.recalibration import recalibrated
from sstorch.soft.separation import separation
from sstorch.soft.settings import BatchSettings
from sstorch.soft.trained_batch import TrainedBatch, TreeSample, partition
from sstorch.threads import one_blas_thread

FORMAT_VERSION = 11
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
# Survival of a row falls from .9 to .1 while time grows by less than this factor. The shape of such a Weibull
# leaf is above 32; survival times have 0.5 to 3.
_STEP = 1.1


class SoftEstimator(SoftModel):
    """Base class of the estimators that predict with a soft tree.

    Attributes:
        tree_: the trained :class:`~sstorch.fitted.FittedTree`: the hazard of every cause under shared gates,
            with the preprocessing of the rows.
        history_: records of the training of the start that was kept, by cause with competing causes.
        objective_: training objective of this start, summed over competing causes.
        time_unit_: unit of the times; None if undefined.
        time_varying_: True if trained on subjects with several rows.
        node_table_: training rows, events and mean predicted survival of each node, by heap number.
        covariance_: :class:`~sstorch.inference.FitCovariance` of the coefficients, for standard errors and
            intervals of :mod:`sstorch.inference`.
        training_rows_: fingerprint of the training rows, for :func:`~sstorch.validate`.
        late_fit_: groups with a mean curve outside the 95 % Kaplan-Meier band late in follow-up, and curves
            before the first entry: one sentence each, with time and remedy, also in `summary()`.
        choice_: :class:`~sstorch.soft.group_choice.GroupChoice`, if penalties were estimated, else None: the
            evidence of the regression and of each set of groups, and ``penalties`` and ``terms`` with
            effective degrees of freedom.
        metrics_: scores by name to be saved with the model, such as those of a cross-validation.
        feature_names_in_: raw feature names.
        n_features_in_: number of raw features.
    """

    _format: ClassVar[str]
    _penalties: ClassVar[type[Penalties]]

    history_: History | Mapping[str, History]
    objective_: float
    metrics_: dict[str, float]

    penalties: Penalties
    columns: Columns
    device: str
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
        return {
            **self._penalties.of(self.penalties).settings,
            **self.columns.settings,
            "device": self.device,
            "dtype": self.dtype,
            "seed": self._seed,
        }

    # ------------------------------------------------------------------ fit

    def fit(
        self,
        X: object,
        y: object = None,
        sample_weight: object = None,
        *,
        sensitive: object = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Train the model.

        Args:
            X: as for :meth:`SoftSurvivalTree.fit <sstorch.SoftSurvivalTree.fit>`.
            y: as there, or :class:`~sstorch.Surv` with ``causes``.
            sample_weight: as there.
            sensitive: as there.
            callbacks: as there. With estimated penalties ``on_round`` is called after each update of the
                variances; with fixed penalties the trainer minimises the objective, for one competing cause
                after the other. With an offset or strata no callback is called.

        Raises:
            DataError: the data are invalid; the message names column, rows and remedy.
            ConfigError: a parameter has an invalid value.
            TrainingError: the objective, or a custom penalty, is not finite.

        Warns:
            ConvergenceWarning: (of scikit-learn) training of leaves stopped before the optimum.
        """
        return self._fit_data(training_rows(X, y, sample_weight, sensitive), callbacks=callbacks)

    def _fit_data(
        self,
        data: SurvivalData,
        schema: Schema | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """``fit`` to rows of positive weight, whose schema is taken from them if None."""
        check_callbacks(callbacks)
        data = data.joined()
        settings = self._training_settings(data)
        if data.causes is not None:
            _warn_of_rare_causes(data)
        callbacks = [*callbacks, *([ProgressBar()] if self.verbose else [])]
        batch, x = train_encoded([data], settings, schema, callbacks, checkpoint)
        self._adopt_best(batch, data, 0, x.of_split(0))
        self._fitted_with(settings, data, x.of_split(0))
        return self

    @one_blas_thread()
    def _adopt_best(self, batch: TrainedBatch, data: SurvivalData, split: int, x: RowFeatures) -> Self:
        """Take over the chosen start of a split, with the tables of its joined rows, encoded (n, p)."""
        start = batch.best_start(split)
        self._adopt(batch, data, split, start, x=x)
        if not bool(batch.converged[batch.position(split, start)]):
            leaves = ", ".join(dict.fromkeys(tree.family.name for tree in batch.trees.values()))
            warnings.warn(
                f"{type(self).__name__} with leaf {leaves} has not converged: coefficients and "
                "predictions are not those of the optimum. Use fewer or less collinear columns, another "
                "leaf, a larger number for ridge, or more iterations of the trainer",
                ConvergenceWarning,
                stacklevel=4,
            )
        self.covariance_ = replace(batch.covariance, terms=term_facts(self.tree_.preprocessor, data.frame))
        self._warn_of_step_curves(data, x)
        report(groups_without_events(self.tree_.apply(x), data), strict=False, stacklevel=4)
        if (penalties := self._penalties.of(self.penalties)).ridge == 0:
            unlimited = separation(self.tree_.preprocessor, x, data, penalties.roughness == 0)
            report(unlimited, strict=False, stacklevel=4)
        # Curves before the first entry are extrapolated.
        for text in self.late_fit_ if data.entry.any() else ():
            warnings.warn(text, DataWarning, stacklevel=4)
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
        """Take over one tree of a trained batch; x are its rows, encoded (n, p), if they are available.

        Its ``node_table_`` is made at the first access, for which the rows are held until then.
        """
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
        tree = batch.fitted(split, start, setting, self._prediction)
        self.tree_ = replace(tree, time_unit=self.time_unit_, time_varying=self.time_varying_)
        self._read_later(data)
        if x is not None:
            self._number_groups(x)
        return self

    def _drop_results(self, *others: str) -> None:
        """Drop results of another tree, or of other leaves."""
        for name in (*RESULTS, "group_table_", "covariance_", *others):
            self.__dict__.pop(name, None)

    def _warn_of_step_curves(self, data: SurvivalData, x: RowFeatures) -> None:
        """Name leaves of which new rows would be all but impossible, in a DataWarning each."""
        for name in self._tree.causes:
            tree = self._tree.of_cause(name)
            rows = data if data.causes is None else data.of_cause(name)
            report(step_curves(tree, x, rows), strict=False, stacklevel=4)

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
        batch = train_batch(splits, self._batch_settings(), Schema.of(data.frame))
        return [
            partial(partition, tree) for tree in TreeSample.of_splits(batch, self._prediction).fitted_trees()
        ]

    # ------------------------------------------------------------------ keep

    def save(self, path: str | Path) -> None:
        """Write the fitted model into a folder: ``model.json`` and ``tensors.safetensors``, no pickle.

        The folder also contains ``metrics_``, ``group_validation_``, ``recalibration_`` and the model card,
        ``MODEL_CARD.md``. It does not contain ``trainer``, ``teacher``, ``random_state`` and ``verbose``,
        which only affect training.

        Raises:
            ConfigError: the folder cannot be written, or a leaf is a family without registration, which
                cannot be loaded.
        """
        state, tensors = tree_state(self._tree)
        self._reading  # noqa: B018 -- made and kept
        state["parameters"] = self._saved_parameters()
        state["fitted"] = {name: vars(self)[name] for name in _FITTED if name in vars(self)}
        write_folder(Path(path), self._format, FORMAT_VERSION, state, tensors)
        # Pages need templates and figures, which a fit does not.
        from sstorch.groups.card import model_card

        write_whole(Path(path) / CARD, model_card(self).encode())

    def _saved_parameters(self) -> dict[str, Any]:
        """Parameters that a file holds; depth and dtype are those of the fitted tree."""
        values, tree = self.get_params(deep=False), self._tree
        values |= {
            "penalties": replace(self._penalties.of(self.penalties), fairness=None, rho=0.0, own=()),
            "dtype": str(tree.module.log_time_scale.dtype).removeprefix("torch."),
            "time_unit": self.time_unit_,
        }
        if "depth" in values:
            values["depth"] = tree.module.topology.depth
        return {name: value for name, value in values.items() if name not in _NOT_SAVED}

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
            parameters |= {"leaf": leaves_of_state(state), "device": device}
            estimator = restored(cls, parameters)
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

    # ------------------------------------------------------------------ internals

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


def _warn_of_rare_causes(data: SurvivalData) -> None:
    """Warn of each cause with fewer than ten events, or fewer than encoded columns."""
    for name in data.cause_names:
        part = data.of_cause(name)
        found = few_events(part.frame, part.event)
        report([Oddity(f"cause {name}: {each.text}", each.remedy) for each in found], False, stacklevel=5)


def step_curves(tree: FittedTree, x: RowFeatures, data: SurvivalData) -> list[Oddity]:
    """Leaves in which S(t | x) falls from .9 to .1 while t grows by less than 10 %.

    Where a leaf has hardly more events than features, its regression fits each of their times, and nothing
    but the ridge keeps the shape from growing: the likelihood of the training rows rewards every sharper
    step. A new row off the step then has a log-likelihood of minus millions. Unconstrained splines have no
    quantiles and are excluded. Encoded rows x (n, p) are those of `data`, by which the tree was trained.
    """
    if tree.module.family.can_rise:
        return []
    # One row represents its leaf: the others have its shape, or one near to it.
    leaves, first, place = np.unique(tree.leaf(x), return_index=True, return_inverse=True)
    early, late = (tree.quantile(x[first], q, extrapolate=True) for q in (0.1, 0.9))
    remedy = "leave columns out, or take a larger ridge"
    if tree.module.topology.depth:
        remedy = (
            "keep groups larger (min_leaf=0.1), share what leaves have in common (init='distilled', or "
            "ridge=0.1) or take a smaller depth"
        )
    rows, events = np.bincount(place), np.bincount(place, data.event).astype(int)
    return [
        Oddity(
            f"the curves of leaf {leaves[k]} ({rows[k]} rows, {events[k]} events) are steps, as if times of "
            "events were known to a tenth; new rows next to a step have almost no likelihood",
            remedy,
        )
        for k in np.flatnonzero(late < _STEP * early)
    ]


def bootstrap_trees(
    estimator: SoftEstimator,
    X: object,
    y: object,
    n_resamples: int = 200,
    sample_weight: object = None,
) -> TreeSample:
    """Train trees on bootstrap resamples as one batch.

    The weight of a row is the number of draws of the row or its subject. Preprocessing, starts and the choice
    of the start are repeated in each resample. Imputation, scaling and knots use each distinct drawn row
    once. A band of the sample shows the sampling variation of the fitted curve, including training and
    starts, but not the bias of penalties or leaf family.

    ``estimator`` sets the parameters and is not fitted; ``n_resamples`` is K; rows, outcomes and weights are
    as in :meth:`~sstorch.SoftSurvivalTree.fit`.

    Raises:
        DataError: the data are invalid, or a resample has no event.
        ConfigError: a parameter has an invalid value.

    References:
        Efron (1981), "Censored data and the bootstrap", Journal of the American Statistical Association 76,
        312-319.

    >>> from sstorch import SurvivalRegression, load_dataset
    >>> data = load_dataset("gbsg2")
    >>> sample = bootstrap_trees(SurvivalRegression(), data.frame, (data.time, data.event), n_resamples=20)
    >>> band = sample.band(data.frame[:1], times=[365.0, 1825.0])
    >>> bool((band.lower < band.median).all() and (band.median < band.upper).all())
    True
    """
    data, settings = training_rows(X, y, sample_weight), estimator._batch_settings()
    splits, draws = resamples(data, n_resamples, settings.seed)
    batch = train_batch(splits, settings, Schema.of(data.frame))
    return TreeSample.of_splits(batch, estimator._prediction, draws)
