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
    """Survival regression: a hazard family with a linear predictor, the sum of curves of the columns.

    Penalties are estimated by marginal likelihood, unless they are fixed numbers. ``choice_`` contains the
    estimates and the effective degrees of freedom of each column. With at least 100 numeric columns and half
    as many columns as rows, or at least 500, effects are linear with one prior variance per column; the prior
    (dense, sparse or between) with the best predictions on held-out rows is used.

    With ``leaf="weibull"``, ``penalties=Penalties(ridge=0)`` and ``columns=Columns(numeric="linear")`` it is
    the usual parametric model, with ``"spline_ph"`` a proportional hazards model with a smooth baseline. With
    competing causes there is one regression per cause; see :meth:`predict_cumulative_incidence`.

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
        """Return coefficients with standard errors, confidence limits and p-values.

        See :func:`sstorch.inference.coefficients`; :mod:`sstorch.inference` also tests whole columns and
        estimates contrasts and predictions with intervals.

        Args:
            level: level of the confidence limits, in (0, 1).
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
