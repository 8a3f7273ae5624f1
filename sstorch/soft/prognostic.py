"""Prognostic trees: groups distilled from a regression, or from any model that predicts survival."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from sstorch.data import SurvivalData
from sstorch.data.design_matrix import RowFeatures
from sstorch.exceptions import ConfigError
from sstorch.optim import Leaves
from sstorch.soft.estimation import PREDICTOR, RESIDUALS
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.parameters import CURVED, GROUP_PENALTIES, Columns, GroupPenalties, Penalties
from sstorch.soft.regression import LEAVES
from sstorch.soft.settings import AUTO, BatchSettings, Dtype, Leaf
from sstorch.soft.teacher import Fidelity, Teacher


class PrognosticTree(SoftEstimator):
    """Prognostic tree: prognostic groups, with the accuracy of the regression.

    Gates use one column each. They are distilled from residuals or predictions of the regression without
    gates, or from another teacher. The evidence decides between the regression and each set of groups;
    levels, slopes and shapes of groups have estimated variances. ``choice_`` reports in one line whether the
    groups explain what the regression misses or summarise it. The prediction for a subject is that of its
    group. Above 20,000 rows gates are placed on a random sample of 20,000, drawn by subject; all other steps
    use all rows.

    With competing causes the gates are distilled from the regressions of all causes: from log cumulative
    hazards at the median event time, weighted by the number of events of the cause. Each group has one hazard
    per cause.

    Args:
        depth: number of gates on every path, 1 to 6 (0: one group with the regression).
        leaf: as for :class:`~sstorch.SurvivalRegression`.
        teacher: source of the gates. ``"residuals"`` or ``"predictor"`` of the regression with the same leaf,
            columns and penalties; None for the one with more evidence. Or a model, fitted to the same rows or
            unfitted: a :class:`~sstorch.SurvivalRegression`, a model with ``predict_survival_function`` (with
            competing causes ``predict_cumulative_incidence``), such as a forest of scikit-survival or a model
            of lifelines, or a function ``(X, times)`` that returns survival curves, (n, n_times). It receives
            the columns of ``X`` after reading, without encoding. Folds and resamples retrain it if it can be
            cloned.
        only_if_needed: if no groups have more evidence than the regression: True for a single group, False
            for groups of its predictions.
        min_leaf: minimum weighted share of the training rows per group, in [0, .5).
        penalties: :class:`~sstorch.GroupPenalties`, or :class:`~sstorch.Penalties` (others have default
            values); grids use ``penalties__ridge``.
        columns: :class:`~sstorch.Columns`, encodings of the columns in leaves and gates.
        trainer: training of the leaves, where penalties are fixed or :class:`~sstorch.GroupPenalties` have
            more than estimated variances; trainers of gates are for :class:`~sstorch.SoftSurvivalTree`.
        random_state: seed of the bag that finds residuals, of resamples and of folds.
        device, dtype, verbose, time_unit: as for :class:`~sstorch.SurvivalRegression`.

    Attributes:
        fidelity_: agreement of the groups with predictions of a ``teacher`` on the training rows; None
            without a teacher and after loading.

    References:
        Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis"; Hinton, Vinyals and Dean
        (2015), "Distilling the knowledge in a neural network"; Prentice, Kalbfleisch, Peterson, Flournoy,
        Farewell and Breslow (1978), "The analysis of failure times in the presence of competing risks",
        Biometrics 34, 541-554.

    >>> from sstorch import load_dataset
    >>> data = load_dataset("gbsg2")
    >>> tree = PrognosticTree(depth=1).fit(data.frame, (data.time, data.event))
    >>> sorted({int(group) for group in tree.apply(data.frame)})
    [1, 2]
    """

    _format = "sstorch.prognostic_tree"
    _title = "Prognostic tree"
    _penalties: ClassVar[type[Penalties]] = GroupPenalties

    fidelity_: Fidelity | None

    def __init__(
        self,
        depth: int = 2,
        leaf: Leaf = AUTO,
        teacher: Any = None,
        only_if_needed: bool = False,
        min_leaf: float = 0.1,
        penalties: Penalties = GROUP_PENALTIES,
        columns: Columns = CURVED,
        trainer: Leaves = LEAVES,
        device: str = "cpu",
        dtype: Dtype = "float64",
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
        time_unit: str | None = None,
    ) -> None:
        self.depth = depth
        self.leaf = leaf
        self.teacher = teacher
        self.only_if_needed = only_if_needed
        self.min_leaf = min_leaf
        self.penalties = penalties
        self.columns = columns
        self.trainer = trainer
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.time_unit = time_unit

    def _batch_settings(self) -> BatchSettings:
        """The checked parameters, as the batch trainer takes them."""
        return BatchSettings.check(
            depth=self.depth,
            leaf=self.leaf,
            min_leaf=self.min_leaf,
            trainer=self.trainer,
            gate_ridge=0.0,  # gates are not trained
            only_if_needed=self.only_if_needed,
            teacher=self.teacher if self._names_teacher else Teacher(self.teacher, refit=True),
            **self._shared_settings(),
        )

    @property
    def _names_teacher(self) -> bool:
        """Whether gates are distilled from the regression, as it is or from its residuals."""
        if self.teacher in (None, RESIDUALS, PREDICTOR):
            return True
        if isinstance(self.teacher, str):
            raise ConfigError(
                f"teacher must be {RESIDUALS!r}, {PREDICTOR!r}, None for the better of both, or a model, got "
                f"{self.teacher!r}"
            )
        return False

    @override
    def _training_settings(self, data: SurvivalData) -> BatchSettings:
        settings = self._batch_settings()
        if self._names_teacher:
            return settings
        teacher = Teacher(self.teacher)
        teacher.check(() if data.causes is None else data.cause_names)
        return replace(settings, teacher=teacher.fitted_to(data))

    @override
    def _fitted_with(self, settings: BatchSettings, data: SurvivalData, x: RowFeatures) -> None:
        self.fidelity_ = None
        if isinstance(settings.teacher, Teacher):
            at = np.array([self.horizon_])
            hazards = [
                self.tree_.of_cause(name).curves(x, at, "cumulative_hazard")[:, 0]
                for name in self.tree_.causes
            ]
            self.fidelity_ = settings.teacher.fidelity(data, self.tree_.apply(x), np.stack(hazards))

    @override
    def summary(self, details: bool = False) -> str:
        """See :meth:`SoftEstimator.summary`; with a teacher the text includes ``fidelity_``."""
        fidelity = getattr(self, "fidelity_", None)
        return super().summary(details) + (f"\n\n{fidelity}" if fidelity is not None else "")
