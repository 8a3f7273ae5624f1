"""Brier score of batches and its integral."""

import torch
from torch import Tensor

from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.batched.arguments import (
    Problems,
    Train,
    check_devices,
    check_overlap,
    curves_on_grid,
    leading_of,
    leading_of_train,
    train_rows,
)
from sstorch.metrics.batched.censoring import CensoringDistribution
from sstorch.metrics.checks import check_choice

CONVENTIONS = ("graf", "sksurv", "osst")


def brier_score(
    time: Tensor,
    event: Tensor,
    survival: Tensor,
    times: Tensor,
    *,
    train: Train,
    convention: str = "graf",
    min_censoring_prob: float | None = None,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Brier score, `sstorch.metrics.brier_score` per problem.

    Args:
        time: (..., n).
        event: (..., n).
        survival: (..., n, n_times).
        times: (n_times,) or (..., n_times).
        train: (time, event) of the training rows, each (..., n_train), or with a weight, 0 for padding.
        convention: "graf", "sksurv" or "osst".
        min_censoring_prob: as there.
        sample_weight: (..., n), or None.

    Returns:
        BS, (..., n_times), float64, differentiable in `survival`.

    Raises:
        DataError: arguments that cannot be used.
        ConfigError: an unknown convention, a floor outside (0, 1], or a floor with a convention that has
            none.

    Examples:
        >>> rows = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1, 1, 0])
        >>> survival = torch.tensor([[0.4, 0.1], [0.8, 0.5], [0.9, 0.7]])
        >>> brier_score(*rows, survival, torch.tensor([1.0, 2.0]), train=rows)
        tensor([0.0700, 0.1167], dtype=torch.float64)
    """
    rows, curves, grid, censoring = _checked(
        time, event, survival, times, train, convention, min_censoring_prob, sample_weight
    )
    return rows.result(_curve(rows, curves, grid, censoring, convention, min_censoring_prob))


def integrated_brier_score(
    time: Tensor,
    event: Tensor,
    survival: Tensor,
    times: Tensor,
    *,
    train: Train,
    convention: str = "graf",
    min_censoring_prob: float | None = None,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Integrated Brier score, `sstorch.metrics.integrated_brier_score` per problem.

    Args:
        time: (..., n).
        event: (..., n).
        survival: (..., n, n_times).
        times: (n_times,) or (..., n_times); for "graf" it reaches the largest test time of every problem.
        train: (time, event) of the training rows, each (..., n_train), or with a weight, 0 for padding.
        convention: "graf", "sksurv" or "osst".
        min_censoring_prob: as there.
        sample_weight: (..., n), or None.

    Returns:
        IBS, (...), float64, differentiable in `survival`.

    Raises:
        DataError: arguments that cannot be used; a grid too short for a problem.
        ConfigError: an unknown convention, a floor outside (0, 1], or a floor with a convention that has
            none.
    """
    rows, curves, grid, censoring = _checked(
        time, event, survival, times, train, convention, min_censoring_prob, sample_weight
    )
    seen = rows.row_weight > 0
    last = torch.where(seen, rows.time, -torch.inf).amax(-1, keepdim=True)
    if convention == "graf":
        return rows.result(_integral_graf(rows, curves, grid, censoring, min_censoring_prob, last))
    inside = torch.ones_like(grid, dtype=torch.bool)
    if convention == "sksurv":
        first = torch.where(seen, rows.time, torch.inf).amin(-1, keepdim=True)
        unknown = (censoring.values[:, -1:] > 0) & (grid > censoring.times[:, -1:])
        inside = (grid >= first) & (grid < last) & ~unknown
    if not bool((inside.sum(-1) >= 2).all()):
        problem = int((inside.sum(-1) < 2).nonzero()[0])
        raise DataError(
            f"times: convention {convention!r} needs two times within the follow-up of the test rows and of "
            f"the training rows; problem {problem} has {int(inside[problem].sum())}."
        )
    score = _curve(rows, curves, grid, censoring, convention, min_censoring_prob)
    width = grid.diff() * (inside[:, 1:] & inside[:, :-1])
    height = score[:, :-1] if convention == "osst" else (score[:, 1:] + score[:, :-1]) / 2.0
    return rows.result((width * height).sum(-1) / width.sum(-1))


def _checked(
    time: Tensor,
    event: Tensor,
    survival: Tensor,
    times: Tensor,
    train: Train,
    convention: str,
    min_censoring_prob: float | None,
    sample_weight: Tensor | None,
) -> tuple[Problems, Tensor, Tensor, CensoringDistribution]:
    check_choice(convention, "convention", CONVENTIONS)
    if convention != "graf" and min_censoring_prob is not None:
        raise ConfigError(
            f"min_censoring_prob: convention {convention!r} has no floor under G; leave it None."
        )
    check_devices(
        time=time, event=event, survival=survival, times=times, train=train, sample_weight=sample_weight
    )
    shapes = (leading_of("survival", survival, 2), leading_of("times", times), leading_of_train(train))
    rows = Problems.of(time, event, sample_weight, *shapes)
    curves, grid = curves_on_grid(survival, times, rows.time.shape[-1], rows.shape)
    tied_events = "at_risk" if convention == "osst" else "removed"
    censoring = CensoringDistribution.fit(train_rows(train, rows), tied_events)
    check_overlap(rows, grid)
    return rows, curves.double(), grid, censoring


def _weights(
    rows: Problems,
    grid: Tensor,
    censoring: CensoringDistribution,
    convention: str,
    min_censoring_prob: float | None,
) -> tuple[Tensor, Tensor]:
    """1 / G of rows with an event, (b, n), and of those at risk, (b, n_times)."""
    if convention == "graf":
        floor = censoring.floor(min_censoring_prob)
        at_event = 1.0 / torch.maximum(censoring.before(rows.time), floor)
        at_risk = 1.0 / torch.maximum(censoring.at(grid), floor)
    else:
        at_event, at_risk = (
            torch.where(g > 0, 1.0 / g.clamp(min=torch.finfo(g.dtype).tiny), 0.0)
            for g in (censoring.at(rows.time), censoring.at(grid))
        )
    return torch.where(rows.event, at_event, 0.0), at_risk


def _curve(
    rows: Problems,
    curves: Tensor,
    grid: Tensor,
    censoring: CensoringDistribution,
    convention: str,
    min_censoring_prob: float | None,
) -> Tensor:
    at_event, at_risk = _weights(rows, grid, censoring, convention, min_censoring_prob)
    failed = rows.time[..., None] <= grid[:, None, :]
    loss = torch.where(failed, curves**2 * at_event[..., None], (1.0 - curves) ** 2 * at_risk[:, None, :])
    weight = rows.row_weight
    return (weight[..., None] * loss).sum(1) / weight.sum(-1, keepdim=True)


def _integral_graf(
    rows: Problems,
    curves: Tensor,
    grid: Tensor,
    censoring: CensoringDistribution,
    min_censoring_prob: float | None,
    last: Tensor,
) -> Tensor:
    """As `sstorch.metrics.graf_integral`, all problems on their own pieces; those beyond tmax are empty."""
    if bool((last == 0).any()):
        raise DataError("time: all test times of a problem are 0, there is no follow-up to integrate over.")
    if bool((grid[:, -1:] < last).any()):
        problem = int((grid[:, -1] < last[:, 0]).nonzero()[0])
        raise DataError(
            f"times: convention 'graf' integrates up to the largest test time, {last[problem].item():g} in "
            f"problem {problem}; the grid ends at {grid[problem, -1].item():g}."
        )
    # A first piece from S(0) = 1; it is empty where the grid begins at 0.
    nodes = torch.cat((torch.zeros_like(grid[:, :1]), grid), dim=-1)
    first = torch.where(grid[:, None, :1] > 0, 1.0, curves[..., :1])
    values = torch.cat((first, curves), dim=-1)
    starts, width = nodes[:, :-1].contiguous(), nodes.diff()
    safe = torch.where(width > 0, width, 1.0)
    ends = torch.maximum(torch.minimum(nodes[:, 1:], last), starts)
    own_time = torch.minimum(rows.time, last)  # rows without weight may lie beyond
    knots = torch.cat((starts, last, own_time, censoring.times), dim=-1)
    knots = torch.minimum(knots, last).sort(dim=-1).values
    piece = (torch.searchsorted(starts, knots[:, :-1].contiguous(), right=True) - 1).clamp(min=0)
    at_event, at_risk = _weights(rows, knots[:, :-1], censoring, "graf", min_censoring_prob)

    def powers(t: Tensor, pieces: Tensor) -> Tensor:
        """Integrals of u^0, u^1, u^2 from the start of the piece to t, (b, m, 3)."""
        share = (t - starts.gather(-1, pieces)) / safe.gather(-1, pieces)
        power = torch.arange(1, 4, device=t.device)
        return share[..., None] ** power / power * width.gather(-1, pieces)[..., None]

    steps = (powers(knots[:, 1:], piece) - powers(knots[:, :-1], piece)) * at_risk[..., None]
    running = torch.cat((torch.zeros_like(steps[:, :1]), steps.cumsum(1)), dim=1)

    def moments(t: Tensor, pieces: Tensor) -> Tensor:
        """Integrals of u^0, u^1, u^2 over G from the start of the piece to t, (b, m, 3)."""
        begin = torch.minimum(starts.gather(-1, pieces), last)
        both = [torch.searchsorted(knots, at.contiguous())[..., None].expand(-1, -1, 3) for at in (t, begin)]
        return running.gather(1, both[0]) - running.gather(1, both[1])

    every = torch.arange(starts.shape[-1], device=grid.device).expand(starts.shape)
    m, h = moments(torch.minimum(ends, last), every), powers(ends, every)
    own = torch.searchsorted(starts, own_time.contiguous(), right=True) - 1
    own_m = moments(own_time, own)
    own_h = powers(ends.gather(-1, own), own) - powers(own_time, own)

    low, slope = values[..., :-1], values.diff(dim=-1)
    before, after = every[:, None, :] < own[..., None], every[:, None, :] > own[..., None]
    risk = torch.where(before, _quadratic(low - 1.0, slope, m[:, None]), 0.0).sum(-1)
    failure = torch.where(after, _quadratic(low, slope, h[:, None]), 0.0).sum(-1)
    low, slope = (a.gather(-1, own[..., None])[..., 0] for a in (low, slope))
    loss = risk + _quadratic(low - 1.0, slope, own_m)
    loss = loss + at_event * (failure + _quadratic(low, slope, own_h))
    weight = rows.row_weight
    return (weight * loss).sum(-1) / (weight.sum(-1) * last[:, 0])


def _quadratic(low: Tensor, slope: Tensor, moments: Tensor) -> Tensor:
    """Integral of (low + slope u)^2 from the moments of 1, u and u^2."""
    return low * low * moments[..., 0] + 2.0 * low * slope * moments[..., 1] + slope * slope * moments[..., 2]
