"""Concordance of batches: the pairs of every problem, counted together."""

import torch
from torch import Tensor

from sstorch.exceptions import DataError
from sstorch.metrics.batched.arguments import (
    Problems,
    Train,
    check_devices,
    check_overlap,
    curves_on_grid,
    flat,
    leading_of,
    leading_of_train,
    refuse,
    train_rows,
)
from sstorch.metrics.batched.censoring import CensoringDistribution
from sstorch.metrics.batched.counting import dense_rank, running, share
from sstorch.metrics.checks import check_choice, check_horizon
from sstorch.metrics.concordance import TIED_RISK, TIED_TIME, TiedRisk, TiedTime
from sstorch.metrics.ipcw import IPCW_FORMS, Ipcw

# Elements of one (problems x rows x events) block: 32 MB of float64 an array.
_BLOCK = 2**22
_BLOCK_CPU = 2**18  # blocks that stay in the cache


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
    train: Train,
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
        train: (time, event) of the training rows, each (..., n_train), or with a weight, 0 for padding.
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
    check_devices(time=time, event=event, survival=survival, times=times, sample_weight=sample_weight)
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
    train: Train,
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
        train: (time, event) of the training rows, each (..., n_train), or with a weight, 0 for padding.
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
    check_devices(
        time=time, event=event, survival=survival, times=times, train=train, sample_weight=sample_weight
    )
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
    train: Train | None = None,
) -> tuple[Problems, Tensor]:
    check_devices(time=time, event=event, risk=risk, train=train, sample_weight=sample_weight)
    others = [leading_of("time", time), leading_of("risk", risk)]
    if risk.shape[-1] != time.shape[-1]:
        raise DataError(f"risk: expected a tensor of shape (..., {time.shape[-1]}); got {tuple(risk.shape)}.")
    if train is not None:
        others.append(leading_of_train(train))
    rows = Problems.of(time, event, sample_weight, *others)
    scores = flat(risk, rows.shape)
    refuse("risk", scores.isnan(), scores, "numbers")
    return rows, scores


def _uno(rows: Problems, train: Train, ipcw: str, min_censoring_prob: float | None) -> Tensor:
    check_choice(ipcw, "ipcw", IPCW_FORMS)
    censoring = CensoringDistribution.fit(train_rows(train, rows))
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
    if rows.time.shape[0] == 0:
        return rows.result(rows.time.new_empty(0))
    order = (~rows.event).int().argsort(dim=-1, stable=True)
    order = order.gather(-1, rows.time.gather(-1, order).argsort(dim=-1, stable=True))
    time, event = rows.time.gather(-1, order), rows.event.gather(-1, order)
    pair_weight, weight = pair_weight.gather(-1, order), rows.row_weight.gather(-1, order)
    group_end = torch.searchsorted(time, time, right=True)
    begin = group_end
    if tied_time == "censored_later":
        n_events = running(event.long())
        group_begin = torch.searchsorted(time, time)
        begin = group_begin + n_events.gather(-1, group_end) - n_events.gather(-1, group_begin)
    n = time.shape[-1]
    mass = running(weight)
    total = (pair_weight * (mass[:, -1:] - mass.gather(-1, begin))).sum(-1)

    own = dense_rank(risk).gather(-1, order)
    rank, end = own, torch.full_like(begin, n)
    lower = torch.zeros_like(time)
    for bit in reversed(range(int(own.max()).bit_length())):
        zero = (rank >> bit) & 1 == 0
        zeros_before, mass = running(zero.long()), running(weight * zero)
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
    mass = running(weight)
    equal = mass.gather(-1, end) - mass.gather(-1, begin)
    return share(rows, (pair_weight * lower).sum(-1), (pair_weight * equal).sum(-1), total, tied_risk)


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
    if n_problems == 0:
        return rows.result(rows.time.new_empty(0))
    # Rows in the order of time: partners of a row stand behind it. One row of `table` is one grid time, so
    # that a query copies a contiguous row; the last one is S = 1, before the grid.
    order = rows.time.argsort(dim=-1, stable=True)
    time, event = rows.time.gather(-1, order), rows.event.gather(-1, order)
    pair_weight, weight = pair_weight.gather(-1, order), weight.gather(-1, order)
    table = curves.detach().gather(1, order[..., None].expand_as(curves)).transpose(1, 2)
    table = torch.cat((table, table.new_ones(n_problems, 1, n)), dim=1)
    height = table.shape[1]
    table = table.reshape(-1, n)
    column = torch.searchsorted(grid, time, right=True) - 1
    column = torch.where(column < 0, height - 1, column)
    column += height * torch.arange(n_problems, device=column.device)[:, None]
    # Rows that count as the earlier of a pair come first; the others need not be looked at.
    first = (pair_weight <= 0).int().argsort(dim=-1, stable=True)
    first = first[:, : int((pair_weight > 0).sum(-1).max())]
    concordant, tied, total = (torch.zeros_like(time[:, 0]) for _ in range(3))
    block = _BLOCK if time.device.type != "cpu" else _BLOCK_CPU
    for query in first.split(max(1, block // (n_problems * n)), dim=-1):
        if query.shape[-1] == 0:
            break  # no row counts as the earlier of a pair
        start = int(query[:, 0].min())  # in the order of time nothing before it can be a partner
        if tied_time == "censored_later":
            start = int(torch.searchsorted(time, time.gather(-1, query[:, :1])).min())
        values = table[column.gather(-1, query).flatten()].view(n_problems, -1, n)[..., start:]
        own = table[column.gather(-1, query).flatten(), query.flatten()].view(n_problems, -1, 1)
        own_time = time.gather(-1, query)[..., None]
        later = time[:, None, start:] > own_time
        if tied_time == "censored_later":
            later |= (time[:, None, start:] == own_time) & ~event[:, None, start:]
        own_weight, partner = pair_weight.gather(-1, query), weight[:, start:, None]
        for count, marked in (
            (total, later),
            (concordant, later & (values > own)),
            (tied, later & (values == own)),
        ):
            count += ((marked.double() @ partner)[..., 0] * own_weight).sum(-1)
    return share(rows, concordant, tied, total, tied_risk)
