"""Net benefit of acting on a predicted risk: the decision curve, under censoring.

Who acts where the risk of an event by t is at least p says that a missed event is as bad as (1 - p) / p
needless actions. So the gain of acting on a model, in events found at no cost, is

    NB(p) = P(R >= p) [ F(t | R >= p) - (1 - F(t | R >= p)) p / (1 - p) ],

R the predicted risk and F one minus Kaplan-Meier of the rows that are acted on. Acting on everybody has
F(t) - (1 - F(t)) p / (1 - p), on nobody 0.
"""

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray
from sstorch.checks import as_numbers
from sstorch.exceptions import ConfigError
from sstorch.metrics.calibration import rows_at_one_time
from sstorch.metrics.outcome import Outcome

# 1 - 0.77 is below 0.23 by rounding.
_ROUNDING = 1e-12


def net_benefit(
    y: Outcome,
    survival: npt.ArrayLike,
    *,
    t: float,
    thresholds: npt.ArrayLike,
) -> pd.DataFrame:
    """Net benefit of a model, of treating all and of treating none, at thresholds of the risk by one time.

    Args:
        y: outcome of the rows, a `Surv` or the tuple (time, event), n of them.
        survival: predicted S_i(t), one probability per row, shape (n,); the risk is 1 - S_i(t).
        t: the time, in the unit of `y`.
        thresholds: risks from which on one would act, in [0, 1), shape (n_thresholds,).

    Returns:
        A row a threshold, indexed by it: net_benefit, treat_all and treat_none (0), in events per row;
        n_above, the rows with a risk of at least the threshold; reason, why the net benefit is NaN, or "". It
        is NaN where all rows above the threshold were observed for less than t and the last of them was
        censored: Kaplan-Meier says nothing of t there. It is 0 where no row is above.

    Raises:
        DataError: arguments that `sstorch.checks` refuses, or a time outside the observed ones.
        ConfigError: t no time > 0, or thresholds outside [0, 1).

    References:
        Vickers and Elkin (2006), Medical Decision Making 26, 565-574; for censoring Vickers, Cronin, Elkin
        and Gonen (2008), BMC Medical Informatics and Decision Making 8, 53.

    Examples:
        >>> rows, survival = ([1, 2, 3, 4], [1, 1, 0, 1]), [0.2, 0.4, 0.7, 0.8]
        >>> table = net_benefit(rows, survival, t=2.5, thresholds=[0.2, 0.5])
        >>> table[["net_benefit", "treat_all", "n_above"]].to_numpy().tolist()
        [[0.375, 0.375, 4.0], [0.5, 0.0, 2.0]]
    """
    row_time, row_event, predicted, horizon = rows_at_one_time(y, survival, t)
    at = check_thresholds(thresholds)
    model, everybody, n_above = net_benefits(row_time, row_event, 1.0 - predicted, horizon, at)
    reasons = np.where(
        np.isnan(model),
        f"no row with such a risk was observed up to {horizon:g}, and not all had the event",
        "",
    )
    columns = {
        "net_benefit": model,
        "treat_all": everybody,
        "treat_none": 0.0,
        "n_above": n_above,
        "reason": reasons,
    }
    return pd.DataFrame(columns, index=pd.Index(at, name="threshold"))


def net_benefits(
    time: FloatArray, event: BoolArray, risk: FloatArray, t: float, thresholds: FloatArray
) -> tuple[FloatArray, FloatArray, npt.NDArray[np.int64]]:
    """Net benefit of the model and of treating all, and how many rows the model treats, each (n_thresholds,).

    For arguments that passed the checks of `net_benefit`; NaN where it is not known.
    """
    order = np.lexsort((~event, time))
    time, event, risk = time[order], event[order], risk[order]
    odds = thresholds / (1.0 - thresholds)

    def incidence(inside: BoolArray) -> float:
        return _incidence(time[inside], event[inside], t)

    above = [risk >= threshold - _ROUNDING for threshold in thresholds]
    n_above = np.array([np.count_nonzero(inside) for inside in above], dtype=np.int64)
    share = n_above / risk.size
    failed = np.array([incidence(inside) for inside in above])
    overall = incidence(np.ones(risk.size, dtype=bool))
    return share * (failed - (1.0 - failed) * odds), overall - (1.0 - overall) * odds, n_above


def _incidence(time: FloatArray, event: BoolArray, t: float) -> float:
    """One minus Kaplan-Meier at t of rows in the order of time, events first among ties; NaN if not known.

    Tied events one after the other have the factors (r - 1) / r, (r - 2) / (r - 1), ..., whose product is
    that of the formula.
    """
    if time.size == 0:
        return 0.0
    at_risk = np.arange(time.size, 0, -1)[event & (time <= t)]
    survival = float(np.prod(1.0 - 1.0 / at_risk))
    return 1.0 - survival if survival == 0.0 or time[-1] >= t else np.nan


def check_thresholds(thresholds: npt.ArrayLike) -> FloatArray:
    """Risks from which on one would act, shape (n_thresholds,).

    Raises:
        ConfigError: none, or one outside [0, 1).
    """
    at = np.atleast_1d(as_numbers(thresholds, "thresholds"))
    if at.ndim != 1 or at.size == 0 or not ((at >= 0.0) & (at < 1.0)).all():
        raise ConfigError(f"thresholds: expected risks in [0, 1), such as [0.1, 0.2]; got {thresholds!r}.")
    return at
