"""Survival regression, prognostic tree and soft survival tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from sstorch.data.encodings import ColumnEncodings, Linear
from sstorch.exceptions import ConfigError
from sstorch.fitted.tree import Prediction
from sstorch.inference import coefficients
from sstorch.nn import Spline, make_family
from sstorch.optim import Leaves, Nodec, Trainer
from sstorch.soft.estimation import PREDICTOR, RESIDUALS
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.parameters import (
    CURVED,
    GATE_PENALTIES,
    GROUP_PENALTIES,
    PENALTIES,
    Columns,
    GatePenalties,
    GroupPenalties,
    Penalties,
)
from sstorch.soft.settings import AUTO, ESTIMATED, BatchSettings, Init, Leaf
from sstorch.soft.teacher import Teacher

LEAVES = Leaves()
# Ridge on slopes where penalties are not estimated, and least share of a leaf under distilled gates.
_RIDGE, _LEAST = 1e-3, 0.1


class SurvivalRegression(SoftEstimator):
    """Survival regression: a hazard family with a linear predictor, the sum of curves of the columns.

    Penalties are estimated by marginal likelihood, unless they are fixed numbers; ``choice_`` contains the
    estimates. With at least 100 numeric columns and half as many columns as rows, or at least 500, effects
    are linear with one ridge, and shapes are those of linear predictors of held-out rows. With
    ``leaf="weibull"``, ``penalties=Penalties(ridge=0)`` and ``columns=Columns(numeric="linear")`` it is the
    usual parametric model. With competing causes there is one regression per cause.

    Args:
        leaf: name of a hazard family (``"log_logistic"``, ``"weibull"``, ``"spline_po"`` ...) or a family
            object such as ``Spline(scale="odds", knots=3)``, or a mapping from causes to these. ``"auto"`` is
            ``"spline_po"``, proportional odds with a smooth baseline; with competing causes ``"spline_ph"``,
            proportional hazards.
        penalties: :class:`~sstorch.Penalties`; grids use ``penalties__ridge``.
        columns: :class:`~sstorch.Columns`, encodings of the columns.
        trainer: any :class:`~sstorch.optim.Trainer`. It is used with fixed penalties (``"auto"`` is then
            ``"spline_po"``, too), and where estimated variances are not all that the penalties are.
        device: ``"cpu"`` or a CUDA device such as ``"cuda"``.
        dtype: ``"float64"`` or ``"float32"``.
        random_state: seed of resamples and folds.
        verbose: 1 shows progress.
        time_unit: unit of the times, such as ``"days"``, used in texts and figures and for round times (a
            year, half a year). None for the unit of the data, if defined.

    >>> from sstorch import load_dataset
    >>> data = load_dataset("gbsg2")
    >>> regression = SurvivalRegression("weibull").fit(data.frame, (data.time, data.event))
    >>> round(float(regression.choice_.terms.loc["horTh", "event"]), 1)
    0.8
    >>> regression.predict_survival_function(data.frame[:2], times=[365.0, 730.0]).shape
    (2, 2)
    """

    _format = "sstorch.survival_regression"
    _title = "Survival regression"
    _penalties: ClassVar[type[Penalties]] = Penalties

    def __init__(
        self,
        leaf: Leaf = AUTO,
        penalties: Penalties = PENALTIES,
        columns: Columns = CURVED,
        trainer: Trainer = LEAVES,
        device: str = "cpu",
        dtype: str = "float64",
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
        time_unit: str | None = None,
    ) -> None:
        self.leaf = leaf
        self.penalties = penalties
        self.columns = columns
        self.trainer = trainer
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.time_unit = time_unit

    def coefficients(self, level: float = 0.95) -> pd.DataFrame:
        """Return coefficients with standard errors, p-values and confidence limits of a level in (0, 1).

        See :func:`sstorch.inference.coefficients`.
        """
        check_is_fitted(self, "tree_")
        return coefficients(self, level)

    @override
    def _effects_text(self) -> str:
        if "covariance_" not in vars(self) or not self.covariance_.hazards:
            return super()._effects_text()
        table = self.coefficients()
        table["p"] = [f"{p:.3f}" if p >= 0.001 else "<.001" if p < 0.001 else "" for p in table["p"]]
        shown = table.to_string(float_format=lambda value: f"{value:.4g}", na_rep="")
        return f"Coefficients, with 95 % confidence limits\n{shown}"

    def _batch_settings(self) -> BatchSettings:
        shared = self._shared_settings()
        return BatchSettings.check(depth=0, leaf=self.leaf, trainer=self.trainer, **shared)


class PrognosticTree(SoftEstimator):
    """Prognostic tree: prognostic groups, with the accuracy of the regression.

    Gates use one column each. They are distilled from residuals or predictions of the regression without
    gates, or from another teacher. The evidence decides between the regression and each set of groups;
    levels, slopes and shapes of groups have estimated variances. ``choice_`` reports whether the groups
    explain what the regression misses or summarise it. Above 20,000 rows gates are placed on a random sample
    of 20,000, drawn by subject; all other steps use all rows.

    With competing causes the gates are distilled from log cumulative hazards of all causes at the median
    event time, weighted by the number of events of the cause. Each group has one hazard per cause.

    Args:
        depth: number of gates on every path, 1 to 6 (0: one group with the regression).
        leaf: as for :class:`~sstorch.SurvivalRegression`.
        teacher: source of the gates. ``"residuals"`` or ``"predictor"`` of the regression with the same leaf,
            columns and penalties; None for the one with more evidence. Or a model, fitted to the same rows or
            unfitted, with ``predict_survival_function`` (with competing causes
            ``predict_cumulative_incidence``), such as one of scikit-survival or lifelines, or a function
            ``(X, times)`` that returns survival curves, (n, n_times), of the columns of ``X``. Folds and
            resamples retrain it; a function cannot be retrained.
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

    References:
        Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis"; Hinton, Vinyals and Dean
        (2015), "Distilling the knowledge in a neural network".

    >>> from sstorch import load_dataset
    >>> data = load_dataset("gbsg2")
    >>> tree = PrognosticTree(depth=1).fit(data.frame, (data.time, data.event))
    >>> sorted({int(group) for group in tree.apply(data.frame)})
    [1, 2]
    """

    _format = "sstorch.prognostic_tree"
    _title = "Prognostic tree"
    _penalties: ClassVar[type[Penalties]] = GroupPenalties

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
        dtype: str = "float64",
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
        teacher = self.teacher
        if teacher not in (None, RESIDUALS, PREDICTOR):
            if isinstance(teacher, str):
                raise ConfigError(
                    f"teacher must be {RESIDUALS!r}, {PREDICTOR!r}, None for the better of both, or a model, "
                    f"got {teacher!r}"
                )
            teacher = Teacher(teacher, refit=True)
        return BatchSettings.check(
            depth=self.depth,
            leaf=self.leaf,
            min_leaf=self.min_leaf,
            trainer=self.trainer,
            gate_ridge=0.0,  # gates are not trained
            only_if_needed=self.only_if_needed,
            teacher=teacher,
            **self._shared_settings(),
        )


class SoftSurvivalTree(SoftEstimator):
    """Soft survival tree: soft multivariate splits and a parametric survival model in each leaf.

    By default all penalties are estimated by marginal likelihood. Leaves share a common part and have levels,
    slopes and shapes of their own. Candidates for the gates are those of :class:`~sstorch.PrognosticTree`,
    which use one column each, and a gate of several columns that is trained on the outcomes together with its
    leaves. The one with the most evidence is taken (``choice_``). With competing causes the gates are shared,
    and each cause has its own hazards.

    With a ``trainer`` gates and leaves of the chosen tree then minimise the training objective under the
    estimated variances. With starts other than ``"distilled"``, or ``ridge`` as a number, they do so under
    fixed penalties; :meth:`paper` has the published settings.

    Args:
        depth: number of gates on every path, 0 (no gate: a parametric regression) to 6.
        leaf: as for :class:`~sstorch.SurvivalRegression`; with fixed penalties ``"auto"`` is
            ``"log_logistic"``.
        trainer: a name or settings such as ``Nodec(eps="eps_ordered", macro_iterations=5)``: ``"nodec"``
            (node-based decomposition), ``"joint"`` (all parameters at once), ``"nodec+joint"``, or
            ``"leaves"`` (gates keep their starting values). None for the estimate itself, in which fairness,
            custom penalties and other restrictions train the leaves; if penalties are fixed, ``"nodec"``.
        init: starting values: ``"distilled"``, gates distilled from a regression; with fixed penalties also
            ``"random"``, ``"kmeans"``, ``"cox"`` for spline leaves, or ``"distilled+random"``, one distilled
            start and random others.
        n_starts: number of starts with fixed penalties, trained as one batch. The tree with the lowest
            training objective is kept. There is one distilled start.
        only_if_needed: with estimated penalties, as for :class:`~sstorch.PrognosticTree`.
        penalties: :class:`~sstorch.GatePenalties`, or :class:`~sstorch.Penalties` (others have default
            values); grids use ``penalties__gate_ridge``.
        columns: :class:`~sstorch.Columns`, encodings of the columns in leaves and gates; with fixed penalties
            ``numeric="auto"`` is linear.
        prediction: ``"hbp"``, the leaf on the path of highest branch probability, or ``"mixture"``, the
            average curve of all leaves, weighted by probability.
        min_leaf: minimum weighted share of the training rows per leaf, in [0, .5); 0 for .1 where gates are
            distilled, else for none. Training adds a penalty, 10 times the sum of squared shortfalls of the
            leaf shares, with soft routing.
        random_state: seed; the same seed gives the same tree on the same machine.
        device, dtype, verbose, time_unit: as for :class:`~sstorch.SurvivalRegression`.

    References:
        Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis"; MacKay (1992), "Bayesian
        interpolation", Neural Computation 4, 415-447, on the evidence.

    >>> from sstorch import load_dataset
    >>> data = load_dataset("gbsg2")
    >>> tree = SoftSurvivalTree(depth=1).fit(data.frame, data.y)
    >>> tree.predict_survival_function(data.frame[:2], times=[365.0, 730.0]).shape
    (2, 2)
    """

    _format = "sstorch.soft_survival_tree"
    _title = "Soft survival tree"
    _penalties: ClassVar[type[Penalties]] = GatePenalties

    def __init__(
        self,
        depth: int = 2,
        leaf: Leaf = AUTO,
        trainer: str | Trainer | None = None,
        init: Init = "distilled",
        n_starts: int = 10,
        only_if_needed: bool = False,
        penalties: Penalties = GATE_PENALTIES,
        columns: Columns = CURVED,
        prediction: Prediction = "hbp",
        min_leaf: float = 0.0,
        device: str = "cpu",
        dtype: str = "float64",
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
        time_unit: str | None = None,
    ) -> None:
        self.depth = depth
        self.leaf = leaf
        self.trainer = trainer
        self.init = init
        self.n_starts = n_starts
        self.only_if_needed = only_if_needed
        self.penalties = penalties
        self.columns = columns
        self.prediction = prediction
        self.min_leaf = min_leaf
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.time_unit = time_unit

    @classmethod
    def paper(cls, depth: int = 2, leaf: Leaf = AUTO, **parameters: Any) -> Self:
        """Create a tree with the settings of the published study.

        As published: NODEC-DR-SST with 10 macro iterations and the thresholds (.1, .3, .4), 20 starts, random
        or by ``init="cox"`` for spline leaves. Differences, whose reasons ``docs/training.md`` gives: gates
        and slopes have a ridge of 1e-3, added to the mean loss; survival curves of splines cannot increase; a
        missing category has all indicators 0.

        Args:
            depth: gates on every path, 0 to 6.
            leaf: hazard family.
            parameters: other parameters, which override these.

        References:
            Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis", section 5.1.
        """
        curved = not isinstance(leaf, Mapping) and leaf != AUTO and isinstance(make_family(leaf), Spline)
        published: dict[str, Any] = {
            "n_starts": 20,
            "trainer": Nodec(),
            "init": "cox" if curved else "random",
            "penalties": GatePenalties(ridge=1e-3, gate_ridge=1e-3),
            "prediction": "hbp",
            "min_leaf": 0.0,
        }
        return cls(depth, leaf, **(published | parameters))

    def _batch_settings(self) -> BatchSettings:
        shared, trainer, distilled = self._shared_settings(), self.trainer, self.init == "distilled"
        estimated = shared["ridge"] == ESTIMATED and distilled
        if trainer is None:
            trainer = Leaves() if estimated else Nodec()
        if not estimated:
            shared["numeric"] = ColumnEncodings.of(shared["numeric"], "numeric").settled(Linear())
            shared["ridge"] = _RIDGE if shared["ridge"] == ESTIMATED else shared["ridge"]
        least = self.min_leaf
        if self.init in ("distilled", "distilled+random") and least == 0:
            least = _LEAST
        return BatchSettings.check(
            depth=self.depth,
            leaf=self.leaf,
            trainer=trainer,
            init=self.init,
            n_starts=1 if distilled else self.n_starts,
            prediction=self.prediction,
            min_leaf=least,
            trains_gates=estimated,
            only_if_needed=self.only_if_needed,
            **shared,
        )
