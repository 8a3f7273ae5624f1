"""Policies: leaves that choose a treatment, and scores of treatments from observed outcomes."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from sstorch._types import FloatArray
from sstorch.checks import check_choice, check_same_order
from sstorch.exact.rows import finite_matrix, finite_vector
from sstorch.exact.tasks import DecisionCosts
from sstorch.exceptions import ConfigError, DataError

PolicyMethod = Literal["direct", "ipw", "doubly_robust"]


class Policy(DecisionCosts):
    """Minus the mean estimated outcome of a policy that assigns one of K treatments to each leaf.

    The loss is -Σ_i Γ[i, treatment of the leaf of i] / N, so that the smallest loss is the largest value.

    Args:
        scores: Γ, estimated outcome of each row under each treatment, (N, K), higher is better: from
            `policy_scores`, or from any model, such as survival probabilities at a horizon or restricted mean
            survival.

    Raises:
        DataError: not a matrix of finite numbers.

    References:
        Zhou, Athey and Wager (2023), Offline multi-action policy learning, Operations Research 71, 148-183.

    Examples:
        >>> from sstorch.exact import solve
        >>> solution = solve([[0], [0], [1]], Policy([[2.0, 1.0], [3.0, 3.5], [0.0, 4.0]]), max_depth=1)
        >>> -solution.loss, solution.decisions().tolist()
        (3.0, [0, 1])
    """

    def __init__(self, scores: npt.ArrayLike) -> None:
        self.scores = finite_matrix(scores, "scores")
        super().__init__(-self.scores)


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
    needs = {"predicted": predicted} if method != "ipw" else {}
    needs |= {"propensity": propensity} if method != "direct" else {}
    for name, value in needs.items():
        if value is None:
            raise ConfigError(f"method {method!r} needs {name}")
    check_same_order(outcome=outcome, treatment=treatment, propensity=propensity, predicted=predicted)
    y = finite_vector(outcome, "outcome")
    n_rows = len(y)
    model = None if predicted is None else finite_matrix(predicted, "predicted")
    given, n_treatments = _treatments(treatment, n_rows, model, propensity)
    scores = np.zeros((n_rows, n_treatments)) if method == "ipw" or model is None else model.copy()
    if method == "direct":
        return scores
    rows = np.arange(n_rows)
    scores[rows, given] += (y - scores[rows, given]) / _propensity(propensity, given, n_treatments)
    return scores


def _treatments(
    treatment: npt.ArrayLike, n_rows: int, model: FloatArray | None, propensity: npt.ArrayLike | None
) -> tuple[npt.NDArray[np.int64], int]:
    """The treatments given (N,), and K."""
    given = finite_vector(treatment, "treatment", n_rows)
    if (given != np.floor(given)).any() or (given < 0).any():
        raise DataError("treatment must be positions 0, 1, ... of treatments")
    n_treatments = int(given.max()) + 1
    if model is not None:
        if len(model) != n_rows or model.shape[1] < n_treatments:
            raise DataError(
                f"predicted must have {n_rows} rows and at least {n_treatments} columns, one per treatment, "
                f"got the shape {model.shape}"
            )
        n_treatments = model.shape[1]
    elif propensity is not None and np.ndim(propensity) == 2:
        n_treatments = max(n_treatments, np.shape(propensity)[1])
    elif len(never := np.setdiff1d(np.arange(n_treatments), given)):
        raise DataError(
            f"treatment: no row got {never[0]}; number the treatments from 0 on without gaps, or give "
            "predicted or propensity a column for each"
        )
    return given.astype(np.int64), n_treatments


def _propensity(
    propensity: npt.ArrayLike | None, given: npt.NDArray[np.int64], n_treatments: int
) -> FloatArray:
    """Propensity of the treatment given, (N,)."""
    if np.ndim(propensity) == 2:  # type: ignore[arg-type]
        every = finite_matrix(propensity, "propensity")  # type: ignore[arg-type]
        if every.shape != (len(given), n_treatments):
            raise DataError(
                f"propensity must have {len(given)} rows and {n_treatments} columns, got {every.shape}"
            )
        chance: FloatArray = every[np.arange(len(given)), given]
    else:
        chance = finite_vector(propensity, "propensity", len(given))  # type: ignore[arg-type]
    if not ((chance > 0.0) & (chance <= 1.0)).all():
        row = int(np.flatnonzero(~((chance > 0.0) & (chance <= 1.0)))[0])
        raise DataError(
            f"propensity: row {row} got its treatment with probability {chance[row]:g}; expected above 0, at "
            "most 1. Leave out rows that could have had one treatment only, or bound the probabilities"
        )
    return chance
