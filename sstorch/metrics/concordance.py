"""Concordance of predictions and the order of the events, under censoring and with competing causes.

Harrell's counts every comparable pair alike, Uno's weights them so that the limit does not depend on
censoring. With competing causes Harrell's censors the other causes; that of Wolbers et al. compares with rows
that another cause has ended.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_horizon, check_vector
from sstorch.data.columns import row_labels
from sstorch.exceptions import ConfigError, DataError, named
from sstorch.metrics.censoring import ipcw_weights
from sstorch.metrics.groups import KaplanMeier, risk_table
from sstorch.metrics.outcome import Observed, Outcome, read_rows, read_scored, training
from sstorch.metrics.pairs import ComparablePairs, Compared, TiedTime, share_of_pairs

# Products of shares that are equal differ by rounding.
_ROUNDING = 1e-12


def concordance_harrell(
    y: Outcome,
    prediction: npt.ArrayLike,
    times: npt.ArrayLike | None = None,
    *,
    tied_time: TiedTime = "exclude",
    tau: float | None = None,
    cause: int | str | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute the concordance C_H of survival curves or of a risk score, without censoring weights.

    Over pairs t_i < t_j with an event in i, the mean of 1[r_i > r_j] + 0.5 1[r_i = r_j], or of the same for
    predicted survival at t_i, S_i(t_i) < S_j(t_i). Values are compared exactly. Time is O(n log n) for a risk
    score and O(n n_events) for curves. With `tied_time="censored_later"` that of a risk score equals R's
    `concordance(Surv(entry, time, event) ~ risk)`; of a cause it equals comprisk's ``concordance_index_cr``.

    Args:
        y: as in `sstorch.metrics`. With entry times (left truncation) a pair counts only if j entered before
            t_i, so that both are at risk at t_i. Consecutive rows of one subject are never a pair.
        prediction: survival S_i(t_k) at `times`, shape (n, n_times); without `times` a risk, shape (n,).
        times: the grid of the curves. Include every distinct event time: S at other times is the
            right-continuous step function through the grid, and 1 before the first.
        tied_time: pairs with t_i = t_j. "exclude" omits them; "censored_later" adds pairs with an event in i
            and none in j (scikit-survival, lifelines, and Antolini in pycox); "all" also adds two events at
            the same time, as two pairs, one in each order.
        tau: only pairs with t_i < tau count; None for all. Unit of `y`.
        cause: as in `sstorch.metrics`; other causes are censored: the ranking of cause-specific hazards.
            :func:`concordance_wolbers` measures the ranking of probabilities.
        sample_weight: weights of the rows, shape (n,); the weight of a pair is the product.

    Returns:
        C_H in [0, 1]: 1 is perfect order, 0.5 no order.

    Raises:
        DataError: invalid arguments, times in another unit than the grid, or no comparable pair.
        ConfigError: an unknown `tied_time`, or a tau that is not a time > 0.

    References:
        Antolini, Boracchi and Biganzoli (2005), Statistics in Medicine 24, 3927-3944: C^td. Harrell, Lee and
        Mark (1996), Statistics in Medicine 15, 361-387, for equal predictions.

    Examples:
        >>> survival = [[0.5, 0.2], [0.9, 0.4], [0.9, 0.8]]
        >>> concordance_harrell(([1.0, 2.0, 3.0], [1, 1, 0]), survival, times=[1.0, 2.0])
        1.0
        >>> concordance_harrell(([1.0, 2.0, 3.0, 4.0], [1, 2, 1, 0]), [0.9, 0.7, 0.1, 0.4], cause=1)
        0.75
    """
    options: dict[str, Any] = {"entry": True, "weight": True, "sample_weight": sample_weight}
    rows, which = read_scored(y, "Harrell's concordance", cause, **options, prediction=prediction)
    return Compared.of(rows.only(which), prediction, times, tied_time, tau).concordance()


def concordance_uno(
    y: Outcome,
    prediction: npt.ArrayLike,
    times: npt.ArrayLike | None = None,
    *,
    train: Outcome,
    tied_time: TiedTime = "exclude",
    tau: float | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute the concordance C_U of survival curves or of a risk score, with pair weights G(t_i-)^-2.

    As `concordance_harrell`, whose arguments and errors it has, but a pair with an event at t_i has the
    weight 1 / G^2, G from `train`, so that the limit does not depend on censoring. Choose tau with G well
    above 0; otherwise a few late events dominate. Where no event ties with a censoring, that of a risk score
    with `tied_time="censored_later"` equals `concordance_index_ipcw` of scikit-survival.

    References:
        Uno, Cai, Pencina, D'Agostino and Wei (2011), Statistics in Medicine 30, 1105-1117, whose pairs and
        weights are used here with the comparison of Antolini et al. (2005).

    Examples:
        >>> survival = [[0.5, 0.2], [0.9, 0.6], [0.9, 0.5]]
        >>> rows = ([1.0, 2.0, 3.0], [1, 1, 0])
        >>> round(concordance_uno(rows, survival, [1.0, 2.0], train=([1.0, 1.5, 3.0], [1, 0, 1])), 6)
        0.333333
    """
    rows = read_rows(y, "Uno's concordance", weight=True, sample_weight=sample_weight, prediction=prediction)
    weight = uno_weights(rows, train)
    return Compared.of(rows, prediction, times, tied_time, tau).concordance(None, weight)


def uno_weights(rows: Observed, train: Outcome) -> FloatArray:
    """1 / G^2 of each row (n,), G from the training rows, see `concordance_uno`."""
    weight = ipcw_weights(rows, train=training(train))
    return weight * weight


def concordance_wolbers(
    y: Outcome,
    risk: npt.ArrayLike,
    cause: int | str = 1,
    *,
    train: Outcome | None = None,
    tau: float | None = None,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Compute the concordance of Wolbers et al. of a risk with the events of a cause.

    The mean of 1[r_i > r_j] + 0.5 1[r_i = r_j] over pairs with the cause in i at t_i < tau, and in j no event
    until t_i (A: t_i < t_j, or censored at t_i) or another cause before (B: t_j <= t_i). With ``train`` pairs
    have weights 1 / G(t_i)^2 (A) and 1 / (G(t_i) G(t_j)) (B). It equals ``concordance_index_incidence`` of
    hazardous. For a single cause it is `concordance_uno` with ``tied_time="censored_later"``. Arguments and
    errors are as in :func:`concordance_harrell`; `risk` is such as the incidence at ``tau``, shape (n,).

    References:
        Wolbers, Blanche, Koller, Witteman and Gerds (2014), "Concordance for prognostic models with competing
        risks", Biostatistics 15, 526-539.

    Examples:
        >>> concordance_wolbers(([1.0, 2.0, 3.0, 4.0], [1, 2, 1, 0]), risk=[0.9, 0.7, 0.1, 0.4])
        0.6
    """
    others = {"sample_weight": sample_weight, "risk": risk}
    rows, which = read_scored(y, "Wolbers' concordance", cause, weight=True, **others)
    horizon = np.inf if tau is None else check_horizon(tau, "tau")
    time, interest, own = rows.time, rows.cause == which, rows.weights
    other: BoolArray = rows.event & ~interest
    values = check_vector(risk, "risk", time.size)
    inverse = np.ones(time.size)
    if train is not None:
        inverse = ipcw_weights(rows, train=training(train, causes=True))
    # Of an event at t_i another cause at the same time is not a later one.
    earlier = np.where(other, np.nextafter(time, -np.inf), time)
    later = ComparablePairs.of(earlier, interest, "censored_later", horizon, inverse * inverse, rows.weight)
    # Rows with another cause at or before t_i: in reversed time those that follow.
    before = ComparablePairs.of(-time, interest & (time < horizon), "censored_later", None, inverse * own)
    before = replace(before, row_weight=(inverse * own * other)[before.order])
    total = sum(pairs.weigh(pairs.partners()) for pairs in (later, before))
    if total == 0:
        raise DataError(
            f"no comparable pair among {time.size} rows, {int(interest.sum())} of them with cause {which}"
        )
    counts = [[pairs.weigh(part) for part in pairs.compare_risk(values)] for pairs in (later, before)]
    concordant, tied = np.sum(counts, axis=0)
    return share_of_pairs(concordant, tied, total)


def concordance_of_groups(y: Outcome, group: npt.ArrayLike, *, train: tuple[Outcome, npt.ArrayLike]) -> float:
    """Compute the concordance of a model with the group as only covariate.

    The prediction is the Kaplan-Meier curve of the training rows of the group, or of all training rows for a
    group without training rows. Pairs within a group count half: 0.5 means no separation.

    `concordance_harrell` gives the same for these curves. `group` is a number or a label for each row, (n,),
    `train` are outcome and group of the training rows.

    Raises:
        DataError: invalid arguments, or no two rows are comparable.

    Examples:
        >>> train = ([1, 2, 8], [1, 1, 1]), [0, 0, 1]
        >>> concordance_of_groups(([1, 2, 3, 4], [1, 1, 1, 1]), [0, 0, 1, 1], train=train)
        0.8333333333333334
    """
    what: dict[str, Any] = {"what": "concordance", "entry": True, "weight": True}
    rows = read_rows(y, **what, group=group)
    if len(train) != 2:
        raise ConfigError("train must be the outcome and the groups of the training rows.")
    with named("train"):
        known = read_rows(train[0], **what, group=train[1])
    n = rows.time.size
    both = row_labels(group, n, "group"), row_labels(train[1], known.time.size, "train group")
    labels, given = np.split(pd.factorize(pd.concat(both))[0], [n])
    times = np.unique(rows.time[rows.event])
    if times.size == 0:
        raise DataError("event: no row has one, so no two rows can be compared.")
    names, codes = np.unique(labels, return_inverse=True)
    members = [(given == label) & (known.weights > 0.0) for label in names]
    parts = [known.take(inside) if inside.any() else known for inside in members]
    curves = np.stack([KaplanMeier.fit(part, level=None).at(times) for part in parts])
    # Rows of a group are alike: pairs are counted by group and time of the event, those observed longer with
    # each event then.
    events = risk_table(rows._replace(entry=None), codes, len(names), times).events
    width = times.size + 1

    def after(place: IntArray) -> FloatArray:
        """Weight by group and time of the rows whose place among the times is behind it."""
        counts = np.bincount(codes * width + place, rows.weight, len(names) * width).astype(np.float64)
        return np.cumsum(counts.reshape(-1, width)[:, :0:-1], axis=1)[:, ::-1]

    longer = after(np.searchsorted(times, rows.survived))
    if rows.entry is not None:
        longer = np.maximum(longer - after(np.searchsorted(times, rows.entry, side="right")), 0.0)
    concordant = pairs = 0.0
    for curve, own in zip(curves, events, strict=True):
        above = (curves > curve + _ROUNDING) + 0.5 * (np.abs(curves - curve) <= _ROUNDING)
        concordant += float((own * longer * above).sum())
        pairs += float((own * longer).sum())
    if pairs == 0:
        raise DataError(
            "time: no two rows can be compared: no row is observed longer than one with an event."
        )
    return concordant / pairs
