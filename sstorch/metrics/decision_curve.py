"""Net benefit of acting on a predicted risk: the decision curve, under censoring.

To act where the risk of an event by t is at least p is to rate a missed event as bad as (1 - p) / p
needless actions. So the gain of acting on a model, in events found at no cost, is

    NB(p) = P(R >= p) [ F(t | R >= p) - (1 - F(t | R >= p)) p / (1 - p) ],

R the predicted risk and F one minus Kaplan-Meier, or with competing causes the Aalen-Johansen estimate, of
the rows that are acted on. Acting on all rows has F(t) - (1 - F(t)) p / (1 - p), on none 0.
"""

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import as_numbers
from sstorch.exceptions import ConfigError
from sstorch.metrics.censoring import NOT_FOLLOWED, followed_to
from sstorch.metrics.horizon import HorizonRows
from sstorch.metrics.outcome import Outcome

# 1 - 0.77 is below 0.23 by rounding.
_ROUNDING = 1e-12


def net_benefit(
    y: Outcome,
    survival: npt.ArrayLike,
    *,
    t: float,
    thresholds: npt.ArrayLike,
    cause: int | str | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> pd.DataFrame:
    """Compute the net benefit of a model, of treating all and of treating none, at risk thresholds.

    Arguments are described in `sstorch.metrics`; `survival` is predicted S_i(t), (n,), of a cause one minus
    its incidence, `t` in the unit of `y`, `thresholds` are risks in [0, 1), (n_thresholds,). With left
    truncation the result is for a population followed from time zero.

    Returns:
        A row per threshold, indexed by it: net_benefit, treat_all and treat_none (0), in events per row;
        n_above, the number of rows with a risk of at least the threshold; reason for a NaN, or "". The net
        benefit is 0 without a row above the threshold, and NaN if their follow-up does not reach t.

    Raises:
        DataError: invalid arguments, or a time outside the observed ones.
        ConfigError: t not > 0, thresholds outside [0, 1), or an unknown cause.

    References:
        Vickers and Elkin (2006), Medical Decision Making 26, 565-574; for censoring Vickers, Cronin, Elkin
        and Gonen (2008), BMC Medical Informatics and Decision Making 8, 53, also for competing causes.

    Examples:
        >>> y, survival = ([1, 2, 3, 4], [1, 1, 0, 1]), [0.2, 0.4, 0.7, 0.8]
        >>> table = net_benefit(y, survival, t=2.5, thresholds=[0.2, 0.5])
        >>> table[["net_benefit", "treat_all", "n_above"]].to_numpy().tolist()
        [[0.375, 0.375, 4.0], [0.5, 0.0, 2.0]]
    """
    return benefits_of(HorizonRows.of(y, survival, t, sample_weight=sample_weight, cause=cause), thresholds)


def benefits_of(rows: HorizonRows, thresholds: npt.ArrayLike) -> pd.DataFrame:
    """`net_benefit` of checked rows."""
    at = check_thresholds(thresholds)
    model, of_all, n_above = net_benefits(rows, at)
    columns = {"net_benefit": model, "treat_all": of_all, "treat_none": 0.0, "n_above": n_above}
    unknown = f"of the rows with such a risk {NOT_FOLLOWED.format(rows.t)}"
    columns["reason"] = np.where(np.isnan(model), unknown, "")
    return pd.DataFrame(columns, index=pd.Index(at, name="threshold"))


def net_benefits(rows: HorizonRows, thresholds: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Net benefit of the model and of treating all, and the rows that it treats, (n_thresholds,) each."""
    rows = rows.take(np.lexsort((~rows.y.event, rows.y.time)))
    odds, above = thresholds / (1.0 - thresholds), 1.0 - rows.survival >= thresholds[:, None] - _ROUNDING
    share = above @ rows.y.weights / rows.y.weights.sum()
    failed = np.array([_incidence(rows, inside) for inside in above])
    overall = _incidence(rows, np.ones(len(rows), dtype=bool))
    n_above: IntArray = np.count_nonzero(above, axis=1)
    # Without negative zeros.
    return share * (failed - (1.0 - failed) * odds) + 0.0, overall - (1.0 - overall) * odds, n_above


def _incidence(rows: HorizonRows, inside: BoolArray) -> float:
    """Incidence at the horizon of rows in the order of time; 0 without rows, NaN if it is unknown."""
    # Tied events have the factors (r - 1) / r, (r - 2) / (r - 1), ..., with the product of the formula.
    if not inside.any():
        return 0.0
    time, weight = rows.y.time[inside], rows.y.weights[inside]
    if not followed_to(rows.t, time, rows.y.event[inside]):
        return np.nan
    if rows.competing or rows.y.entry is not None:
        return rows.take(np.flatnonzero(inside)).incidence()[0]
    failed = rows.y.event[inside] & (time <= rows.t)
    at_risk = np.cumsum(weight[::-1])[::-1]
    # The last row leaves none, whatever its weight rounds to.
    return 1.0 - float(np.prod(np.where(weight < at_risk, 1.0 - weight / at_risk, 0.0)[failed]))


def check_thresholds(thresholds: npt.ArrayLike) -> FloatArray:
    """Risks from which on one would act, shape (n_thresholds,)."""
    at = np.atleast_1d(as_numbers(thresholds, "thresholds"))
    if at.ndim != 1 or at.size == 0 or not ((at >= 0.0) & (at < 1.0)).all():
        raise ConfigError(f"thresholds must be risks in [0, 1), such as [0.1, 0.2], got {thresholds!r}.")
    return at
