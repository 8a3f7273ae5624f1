"""Prognostic trees: groups distilled from a regression, or from any model that predicts survival."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from sstorch.data import SurvivalData
from sstorch.data.coded import RowFeatures
from sstorch.exceptions import ConfigError
from sstorch.optim import Leaves
from sstorch.soft.estimation import PREDICTOR, RESIDUALS
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.honest import Honest
from sstorch.soft.parameters import CURVED, GROUP_PENALTIES, Columns, GroupPenalties, Penalties
from sstorch.soft.regression import LEAVES
from sstorch.soft.settings import AUTO, BatchSettings, Dtype, Leaf
from sstorch.soft.teacher import Fidelity, Teacher


class PrognosticTree(SoftEstimator):
    """Prognostic tree: groups of different prognosis, at no loss of accuracy compared with the regression.

    Gates of one column are distilled from the regression without gates, from what it misses and from what it
    predicts, or from another teacher. The evidence decides between the regression and each set of groups,
    whose levels, slopes and shapes have estimated variances: ``choice_`` says in one line whether the groups
    explain what the regression misses or summarise it. A subject's prediction is that of its group. Of more
    than 20,000 rows gates are placed by 20,000, drawn by subject; all else sees all rows.

    Where causes compete, gates divide by what happens: they are distilled from the regressions of all causes,
    from log cumulative hazards of the rows at the median event time, each with the weight of its number of
    events, and each group has a hazard of every cause.

    Args:
        depth: gates on every path, 1 to 6 (0 is a regression in a single group).
        leaf: name of a hazard family (``"log_logistic"``, ``"weibull"``, ``"spline_po"`` ...) or a family
            object such as ``Spline(scale="odds", knots=3)``, or a mapping of these by cause. ``"auto"`` is
            ``"spline_po"``, proportional odds with a smooth baseline; where causes compete ``"spline_ph"``,
            proportional hazards.
        teacher: what gates are distilled from: ``"residuals"`` of the regression of the same leaf, columns
            and penalties, its ``"predictor"``, or None for whichever has more evidence; or
            :class:`~sstorch.Honest`, gates from one half of the subjects and hazards from the other. Or a
            model, fitted to the same rows or not yet: a :class:`~sstorch.SurvivalRegression`, anything with
            ``predict_survival_function`` such as a forest of scikit-survival or a model of lifelines, or a
            function ``(X, times)`` that gives survival curves, (n, n_times). Where causes compete it has
            ``predict_cumulative_incidence``. It sees ``X`` as the columns were read. On folds and resamples
            it is trained anew, if it can be cloned.
        gate_features: columns of a gate: 1 gives plain thresholds and sets of categories, None gates on all
            columns. Gates from residuals have one.
        only_if_needed: where no groups have more evidence than the regression, True leaves its rows in one
            group, False divides them by what it predicts.
        min_leaf: least share of the training rows, by weight, in a group, in [0, .5).
        penalties: :class:`~sstorch.GroupPenalties`, or :class:`~sstorch.Penalties` with the others by
            default; ``penalties__ridge`` is a parameter of a grid.
        columns: :class:`~sstorch.Columns`, what leaves and gates see of the columns.
        trainer: settings of the training of the leaves; one that moves gates is of
            :class:`~sstorch.SoftSurvivalTree`.
        device: ``"cpu"`` or a CUDA device such as ``"cuda"``.
        dtype: ``"float64"`` or ``"float32"``.
        random_state: seed of the bag that finds residuals, of resamples and of folds.
        verbose: 1 shows progress.
        time_unit: unit of the times, such as ``"days"``, as texts and figures name it; their round times
            (a year, half a year) follow it. None for that of the data, where these know it.

    Attributes:
        fidelity_: how much of the predictions of a ``teacher`` the groups keep, on the training rows; None
            without, and of a loaded tree.

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
        gate_features: int | None = 1,
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
        self.gate_features = gate_features
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
            gate_features=self.gate_features,
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
        if isinstance(self.teacher, Honest) or self.teacher in (None, RESIDUALS, PREDICTOR):
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
        """See :meth:`SoftEstimator.summary`; with a teacher also how much of it the groups keep."""
        fidelity = getattr(self, "fidelity_", None)
        return super().summary(details) + (f"\n\n{fidelity}" if fidelity is not None else "")
