"""Survival regression: one hazard for all rows, curves of the columns, penalties."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted
from typing_extensions import override

from sstorch.inference import coefficients
from sstorch.optim import Leaves, Trainer
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.parameters import CURVED, PENALTIES, Columns, Penalties
from sstorch.soft.settings import AUTO, BatchSettings, Dtype, Leaf

LEAVES = Leaves()


class SurvivalRegression(SoftEstimator):
    """Survival regression: a hazard family whose linear predictor is a sum of curves of the columns.

    Penalties are estimated by marginal likelihood, unless they are given as numbers: ``choice_`` has them and
    the effective degrees of freedom of each column. From 100 numeric columns on, if they are at least half as
    many as the rows, or from 500 on, columns are straight lines and each has a prior variance of its own,
    dense, sparse or between, whichever predicts held-out rows best.

    With ``leaf="weibull"``, ``penalties=Penalties(ridge=0)`` and ``columns=Columns(numeric="linear")`` it is
    the parametric model of textbooks, with ``"spline_ph"`` a proportional hazards model with a smooth
    baseline. Where causes compete each cause has a regression of its own, and
    :meth:`predict_cumulative_incidence` what a subject can expect.

    Args:
        leaf: name of a hazard family (``"log_logistic"``, ``"weibull"``, ``"spline_po"`` ...) or a family
            object such as ``Spline(scale="odds", knots=3)``, or a mapping of these by cause. ``"auto"`` is
            ``"spline_po"``, proportional odds with a smooth baseline; where causes compete ``"spline_ph"``,
            proportional hazards.
        penalties: :class:`~sstorch.Penalties`; ``penalties__ridge`` is a parameter of a grid.
        columns: :class:`~sstorch.Columns`, what the regression sees of the columns.
        trainer: settings of the minimisation.
        device: ``"cpu"`` or a CUDA device such as ``"cuda"``.
        dtype: ``"float64"`` or ``"float32"``.
        random_state: seed of resamples and folds.
        verbose: 1 shows progress.
        time_unit: unit of the times, such as ``"days"``, as texts and figures name it; their round times
            (a year, half a year) follow it. None for that of the data, where these know it.

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
        dtype: Dtype = "float64",
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
        """Coefficients with standard errors, confidence limits and p-values.

        See :func:`sstorch.inference.coefficients`; :mod:`sstorch.inference` also has tests of whole columns,
        contrasts between two values, and predictions with intervals.

        Args:
            level: of the confidence limits, in (0, 1).
        """
        check_is_fitted(self, "tree_")
        return coefficients(self, level)

    @override
    def _coefficient_text(self) -> str:
        if "covariance_" not in vars(self) or not self.covariance_.hazards:
            return ""
        table = self.coefficients()
        table["p"] = [f"{p:.3f}" if p >= 0.001 else "<.001" if p < 0.001 else "" for p in table["p"]]
        shown = table.to_string(float_format=lambda value: f"{value:.4g}", na_rep="")
        return f"Coefficients, with 95 % confidence limits\n{shown}"

    def _batch_settings(self) -> BatchSettings:
        """The checked parameters, as the batch trainer takes them."""
        return BatchSettings.check(
            depth=0,
            leaf=self.leaf,
            trainer=self.trainer,
            **self._shared_settings(),
        )
