"""Targets from observed outcomes: classes at a horizon with censoring weights, and scores of treatments."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray, IntArray
from sstorch.checks import check_choice, check_same_order, rows_text
from sstorch.data.target import parse_target, time_of_rows
from sstorch.exact.rows import finite_matrix, finite_vector
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import censoring_distribution

PolicyMethod = Literal["direct", "ipw", "doubly_robust"]


def horizon_labels(time: npt.ArrayLike, event: npt.ArrayLike, horizon: float) -> tuple[IntArray, FloatArray]:
    """Compute labels and censoring weights for classification of events up to a horizon.

    Weights are 1 / G(t-) for rows with an event by the horizon, 1 / G(horizon-) for rows with follow-up to
    the horizon or longer without an event, and 0 for rows censored before. G is the Kaplan-Meier estimate of
    the censoring distribution, P(C > t), of all rows, with tied events before censorings; censoring must not
    depend on X.

    Args:
        time: observed times, (N,).
        event: True or 1 if the event was observed, (N,).
        horizon: > 0, in the unit of the times.

    Returns:
        Labels (N,), 1 for an observed event up to the horizon, else 0; and weights (N,).

    Raises:
        DataError: as `sstorch.Surv`; a horizon that is not positive, beyond the event-free follow-up of all
            rows, or before the first event.

    References:
        Graf, Schmoor, Sauerbrei and Schumacher (1999), Statistics in Medicine 18, 2529-2545.

    Examples:
        >>> labels, weights = horizon_labels([1.0, 2.0, 3.0, 5.0, 6.0], [1, 0, 1, 0, 1], horizon=4.0)
        >>> labels.tolist(), weights.round(3).tolist()
        ([1, 0, 1, 0, 0], [1.0, 0.0, 1.333, 1.333, 1.333])
    """
    times, events = parse_target((time, event))
    if not (np.isfinite(horizon) and horizon > 0.0):
        raise DataError(f"horizon must be a time > 0, got {horizon}")
    horizon = time_of_rows(horizon, times)
    early = events & (times <= horizon)
    alive = (times > horizon) | ((times == horizon) & ~events)
    for found, what, other in (
        (alive, f"was observed so long without event, the last time is {times.max():g}", "an earlier"),
        (early, "has an event up to then", "a later"),
    ):
        if not found.any():
            raise DataError(f"horizon={horizon:g}: no row {what}; choose {other} one")
    censoring = censoring_distribution((times, events))
    weights = np.zeros(len(times))
    weights[early] = 1.0 / censoring.before(times[early])
    weights[alive] = 1.0 / float(censoring.before(np.array([horizon]))[0])
    return early.astype(np.int64), weights


def policy_scores(
    method: PolicyMethod,
    *,
    treatment: npt.ArrayLike,
    outcome: npt.ArrayLike,
    propensity: npt.ArrayLike | None = None,
    predicted: npt.ArrayLike | None = None,
) -> FloatArray:
    """Compute scores Γ of rows under treatments from observational data.

    With t the treatment given, y its outcome, e(t) its propensity and m a model of the outcome:

    * ``"direct"``: Γ_k = m_k;
    * ``"ipw"``: Γ_k = 1(t = k) y / e(t);
    * ``"doubly_robust"``: Γ_k = m_k + 1(t = k) (y - m_k) / e(t), consistent if either model is correct.

    Args:
        method: see above.
        treatment: position 0 .. K - 1 of the treatment given, (N,).
        outcome: (N,), higher is better.
        propensity: probability of the received treatment, (N,), in (0, 1]; or of all treatments, (N, K). Not
            needed for ``"direct"``.
        predicted: m, (N, K), preferably from a model trained on other rows. Not needed for ``"ipw"``.

    Returns:
        Γ, (N, K).

    Raises:
        ConfigError: an unknown method, or a missing argument.
        DataError: an array of the wrong shape, a propensity outside (0, 1], or a treatment out of range.

    Examples:
        >>> policy_scores("ipw", treatment=[0, 1], outcome=[3.0, 1.0], propensity=[0.5, 0.25]).tolist()
        [[6.0, 0.0], [0.0, 4.0]]
    """
    check_choice(method, "method", get_args(PolicyMethod))
    for name, value, other in (("predicted", predicted, "ipw"), ("propensity", propensity, "direct")):
        if value is None and method != other:
            raise ConfigError(f"method {method!r} needs {name}")
    check_same_order(outcome=outcome, treatment=treatment, propensity=propensity, predicted=predicted)
    y = finite_vector(outcome, "outcome")
    received = finite_vector(treatment, "treatment", len(y))
    if (received != np.floor(received)).any() or (received < 0).any():
        raise DataError("treatment must be positions 0, 1, ... of treatments")
    given, rows = received.astype(np.int64), np.arange(len(y))
    wide = {"predicted": predicted, "propensity": propensity if np.ndim(propensity) == 2 else None}  # type: ignore[arg-type]
    tables = {name: finite_matrix(value, name) for name, value in wide.items() if value is not None}
    n_treatments = max([int(given.max()) + 1, *(table.shape[1] for table in tables.values())])
    for name, table in tables.items():
        if table.shape != (len(y), n_treatments):
            raise DataError(
                f"{name} must have {len(y)} rows and {n_treatments} columns, one per treatment, got the "
                f"shape {table.shape}"
            )
    if not tables and len(never := np.setdiff1d(np.arange(n_treatments), given)):
        raise DataError(
            f"treatment: no row got {never[0]}; number the treatments from 0 on without gaps, or give "
            "predicted or propensity a column for each"
        )
    model = np.zeros((len(y), n_treatments)) if method == "ipw" else tables["predicted"].copy()
    if method == "direct":
        return model
    if "propensity" in tables:
        chance = tables["propensity"][rows, given]
    else:
        chance = finite_vector(propensity, "propensity", len(y))  # type: ignore[arg-type]
    if (bad := (chance <= 0.0) | (chance > 1.0)).any():
        raise DataError(
            f"propensity must be above 0, at most 1, got {chance[bad][0]:g} for the treatment of "
            f"{rows_text(bad)}. Leave out rows that could have had one treatment only, or bound the "
            "probabilities"
        )
    model[rows, given] += (y - model[rows, given]) / chance
    return model
