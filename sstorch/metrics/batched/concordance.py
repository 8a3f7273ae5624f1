"""Concordance of batches: the pairs of every problem, counted together."""

import torch
from torch import Tensor

from sstorch.exceptions import DataError
from sstorch.metrics.batched.arguments import (
    Problems,
    check_overlap,
    curves_on_grid,
    flat,
    leading_of,
    leading_of_train,
    refuse,
    train_rows,
)
from sstorch.metrics.batched.censoring import CensoringDistribution
from sstorch.metrics.checks import check_choice, check_horizon
from sstorch.metrics.concordance import TIED_RISK, TIED_TIME, TiedRisk, TiedTime
from sstorch.metrics.ipcw import IPCW_FORMS, Ipcw

# Elements of one (problems x rows x events) block: 32 MB of float64 an array.
_BLOCK = 2**22
# Weighted sums of the same pairs in another order agree to this share.
_ROUNDING = 1e-12


@torch.no_grad()
def concordance_harrell_risk(
    time: Tensor,
    event: Tensor,
    risk: Tensor,
    *,
    tied_time: TiedTime = "exclude",
    tied_risk: TiedRisk = "half",
    tau: float | None = None,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Harrell's C of a risk score, `sstorch.metrics.concordance_harrell_risk` per problem, O(n log n).

    Args:
        time: (..., n).
        event: (..., n).
        risk: (..., n), higher where the event is expected earlier.
        tied_time: as there.
        tied_risk: as there.
        tau: as there.
        sample_weight: (..., n), or None.

    Returns:
        C, (...), float64.

    Raises:
        DataError: arguments that cannot be used, or a problem without comparable pair.
        ConfigError: an unknown option.

    Examples:
        >>> rows = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1, 1, 0])
        >>> concordance_harrell_risk(*rows, torch.tensor([[3.0, 2.0, 1.0], [2.0, 2.0, 1.0]])).tolist()
        [1.0, 0.8333333333333334]
    """
    rows, scores = _risk_rows(time, event, risk, sample_weight)
    return _risk(rows, scores, None, tied_time, tied_risk, tau)


@torch.no_grad()
def concordance_uno_risk(
    time: Tensor,
    event: Tensor,
    risk: Tensor,
    *,
    train: tuple[Tensor, Tensor],
    tied_time: TiedTime = "exclude",
    tied_risk: TiedRisk = "half",
    tau: float | None = None,
    ipcw: Ipcw = "G(t-)",
    min_censoring_prob: float | None = None,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Uno's C of a risk score, `sstorch.metrics.concordance_uno_risk` per problem, O(n log n).

    Args:
        time: (..., n).
        event: (..., n).
        risk: (..., n), higher where the event is expected earlier.
        train: (time, event) of the training rows, each (..., n_train).
        tied_time: as there.
        tied_risk: as there.
        tau: as there.
        ipcw: as there.
        min_censoring_prob: as there.
        sample_weight: (..., n), or None.

    Returns:
        C, (...), float64.

    Raises:
        DataError: arguments that cannot be used, or a problem without comparable pair.
        ConfigError: an unknown option.
    """
    rows, scores = _risk_rows(time, event, risk, sample_weight, train)
    return _risk(rows, scores, _uno(rows, train, ipcw, min_censoring_prob), tied_time, tied_risk, tau)


@torch.no_grad()
def concordance_harrell(
    time: Tensor,
    event: Tensor,
    survival: Tensor,
    times: Tensor,
    *,
    tied_time: TiedTime = "exclude",
    tied_risk: TiedRisk = "half",
    tau: float | None = None,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Time-dependent concordance, `sstorch.metrics.concordance_harrell` per problem.

    Args:
        time: (..., n).
        event: (..., n).
        survival: (..., n, n_times).
        times: (n_times,) or (..., n_times).
        tied_time: as there.
        tied_risk: as there.
        tau: as there.
        sample_weight: (..., n), or None.

    Returns:
        C, (...), float64.

    Raises:
        DataError: arguments that cannot be used, or a problem without comparable pair.
        ConfigError: an unknown option.
    """
    rows = Problems.of(
        time, event, sample_weight, leading_of("survival", survival, 2), leading_of("times", times)
    )
    return _curves(rows, survival, times, None, tied_time, tied_risk, tau)


@torch.no_grad()
def concordance_uno(
    time: Tensor,
    event: Tensor,
    survival: Tensor,
    times: Tensor,
    *,
    train: tuple[Tensor, Tensor],
    tied_time: TiedTime = "exclude",
    tied_risk: TiedRisk = "half",
    tau: float | None = None,
    ipcw: Ipcw = "G(t-)",
    min_censoring_prob: float | None = None,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Time-dependent concordance of Uno, `sstorch.metrics.concordance_uno` per problem.

    Args:
        time: (..., n).
        event: (..., n).
        survival: (..., n, n_times).
        times: (n_times,) or (..., n_times).
        train: (time, event) of the training rows, each (..., n_train).
        tied_time: as there.
        tied_risk: as there.
        tau: as there.
        ipcw: as there.
        min_censoring_prob: as there.
        sample_weight: (..., n), or None.

    Returns:
        C, (...), float64.

    Raises:
        DataError: arguments that cannot be used, or a problem without comparable pair.
        ConfigError: an unknown option.
    """
    shapes = (leading_of("survival", survival, 2), leading_of("times", times), leading_of_train(train))
    rows = Problems.of(time, event, sample_weight, *shapes)
    return _curves(
        rows, survival, times, _uno(rows, train, ipcw, min_censoring_prob), tied_time, tied_risk, tau
    )


def _risk_rows(
    time: Tensor,
    event: Tensor,
    risk: Tensor,
    sample_weight: Tensor | None,
    train: tuple[Tensor, Tensor] | None = None,
) -> tuple[Problems, Tensor]:
    others = [leading_of("time", time), leading_of("risk", risk)]
    if risk.shape[-1] != time.shape[-1]:
        raise DataError(f"risk: expected a tensor of shape (..., {time.shape[-1]}); got {tuple(risk.shape)}.")
    if train is not None:
        others.append(leading_of_train(train))
    rows = Problems.of(time, event, sample_weight, *others)
    scores = flat(risk, rows.shape)
    refuse("risk", scores.isnan(), scores, "numbers")
    return rows, scores


def _uno(rows: Problems, train: tuple[Tensor, Tensor], ipcw: str, min_censoring_prob: float | None) -> Tensor:
    check_choice(ipcw, "ipcw", IPCW_FORMS)
    censoring = CensoringDistribution.fit(*train_rows(train, rows.shape))
    g = censoring.before(rows.time) if ipcw == "G(t-)" else censoring.at(rows.time)
    return torch.maximum(g, censoring.floor(min_censoring_prob)) ** -2.0


def _pair_weight(rows: Problems, uno: Tensor | None, tau: float | None) -> Tensor:
    """Weight of each row as the earlier of a pair, (b, n)."""
    counts = rows.event if tau is None else rows.event & (rows.time < check_horizon(tau, "tau"))
    weight = rows.row_weight * counts
    return weight if uno is None else weight * uno


def _risk(
    rows: Problems, risk: Tensor, uno: Tensor | None, tied_time: str, tied_risk: str, tau: float | None
) -> Tensor:
    """As `ComparablePairs.count_risk`; every row is a query, those without event weigh nothing."""
    check_choice(tied_time, "tied_time", TIED_TIME)
    check_choice(tied_risk, "tied_risk", TIED_RISK)
    pair_weight = _pair_weight(rows, uno, tau)
    order = (~rows.event).int().argsort(dim=-1, stable=True)
    order = order.gather(-1, rows.time.gather(-1, order).argsort(dim=-1, stable=True))
    time, event = rows.time.gather(-1, order), rows.event.gather(-1, order)
    pair_weight, weight = pair_weight.gather(-1, order), rows.row_weight.gather(-1, order)
    group_end = torch.searchsorted(time, time, right=True)
    begin = group_end
    if tied_time == "censored_later":
        n_events = _running(event.long())
        group_begin = torch.searchsorted(time, time)
        begin = group_begin + n_events.gather(-1, group_end) - n_events.gather(-1, group_begin)
    n = time.shape[-1]
    mass = _running(weight)
    total = (pair_weight * (mass[:, -1:] - mass.gather(-1, begin))).sum(-1)

    own = _dense_rank(risk).gather(-1, order)
    rank, end = own, torch.full_like(begin, n)
    lower = torch.zeros_like(time)
    for bit in reversed(range(int(own.max()).bit_length())):
        zero = (rank >> bit) & 1 == 0
        zeros_before, mass = _running(zero.long()), _running(weight * zero)
        n_zeros = zeros_before[:, -1:]
        up = (own >> bit) & 1 == 1
        lower += torch.where(up, mass.gather(-1, end) - mass.gather(-1, begin), 0.0)
        zero_begin, zero_end = zeros_before.gather(-1, begin), zeros_before.gather(-1, end)
        begin = torch.where(up, n_zeros + begin - zero_begin, zero_begin)
        end = torch.where(up, n_zeros + end - zero_end, zero_end)
        before = zeros_before[:, :-1]
        place = torch.where(zero, before, n_zeros + torch.arange(n, device=time.device) - before)
        rank = torch.empty_like(rank).scatter_(-1, place, rank)
        weight = torch.empty_like(weight).scatter_(-1, place, weight)
    mass = _running(weight)
    equal = mass.gather(-1, end) - mass.gather(-1, begin)
    return _share(rows, (pair_weight * lower).sum(-1), (pair_weight * equal).sum(-1), total, tied_risk)


def _curves(
    rows: Problems,
    survival: Tensor,
    times: Tensor,
    uno: Tensor | None,
    tied_time: str,
    tied_risk: str,
    tau: float | None,
) -> Tensor:
    check_choice(tied_time, "tied_time", TIED_TIME)
    check_choice(tied_risk, "tied_risk", TIED_RISK)
    n_problems, n = rows.time.shape
    curves, grid = curves_on_grid(survival, times, n, rows.shape)
    check_overlap(rows, grid)
    pair_weight, weight = _pair_weight(rows, uno, tau), rows.row_weight
    column = torch.searchsorted(grid, rows.time, right=True) - 1
    # Rows that count as the earlier of a pair come first; the others need not be looked at.
    first = (pair_weight <= 0).int().argsort(dim=-1, stable=True)
    first = first[:, : int((pair_weight > 0).sum(-1).max())]
    concordant, tied, total = (torch.zeros_like(rows.time[:, 0]) for _ in range(3))
    for query in first.split(max(1, _BLOCK // (n_problems * n)), dim=-1):
        columns = column.gather(-1, query)[:, None, :].expand(-1, n, -1)
        values = torch.where(columns >= 0, curves.gather(-1, columns.clamp(min=0)), 1.0)
        own = values.gather(1, query[:, None, :])
        own_time = rows.time.gather(-1, query)[:, None, :]
        later = rows.time[..., None] > own_time
        if tied_time == "censored_later":
            later |= (rows.time[..., None] == own_time) & ~rows.event[..., None]
        pairs = later * weight[..., None] * pair_weight.gather(-1, query)[:, None, :]
        total += pairs.sum((1, 2))
        concordant += torch.where(values > own, pairs, 0.0).sum((1, 2))
        tied += torch.where(values == own, pairs, 0.0).sum((1, 2))
    return _share(rows, concordant, tied, total, tied_risk)


def _share(rows: Problems, concordant: Tensor, tied: Tensor, total: Tensor, tied_risk: str) -> Tensor:
    untied = total - tied if tied_risk == "exclude" else total
    empty = untied <= _ROUNDING * total
    if bool(empty.any()):
        problem = int(empty.nonzero()[0])
        raise DataError(
            f"no comparable pair in problem {problem}, {int(rows.event[problem].sum())} events in "
            f"{rows.event.shape[-1]} rows: concordance needs a row whose event comes before the time of "
            "another."
        )
    if tied_risk == "half":
        concordant = concordant + 0.5 * tied
    return rows.result((concordant / untied).clamp(0.0, 1.0))  # weighted sums may round past the ends


def _running(values: Tensor) -> Tensor:
    """Sums of the first 0, 1, ..., n entries, (b, n) -> (b, n + 1)."""
    return torch.cat((torch.zeros_like(values[:, :1]), values.cumsum(-1)), dim=-1)


def _dense_rank(values: Tensor) -> Tensor:
    """0 for the smallest value of a problem, 1 for the next, equal values alike, (b, n)."""
    ordered, order = values.sort(dim=-1)
    steps = torch.cat((torch.zeros_like(order[:, :1]), (ordered[:, 1:] > ordered[:, :-1]).long()), dim=-1)
    return torch.empty_like(order).scatter_(-1, order, steps.cumsum(-1))


__all__ = ["concordance_harrell", "concordance_harrell_risk", "concordance_uno", "concordance_uno_risk"]
