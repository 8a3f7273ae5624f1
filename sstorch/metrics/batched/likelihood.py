"""Log-likelihood of batches."""

import torch
from torch import Tensor

from sstorch.exceptions import DataError
from sstorch.metrics.batched.arguments import Problems, check_devices, leading_of, refuse


def log_likelihood(
    event: Tensor,
    cumulative_hazard: Tensor,
    log_hazard: Tensor,
    *,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """Mean log-likelihood, `sstorch.metrics.log_likelihood` per problem.

    Args:
        event: (..., n).
        cumulative_hazard: H_i(t_i) >= 0, (..., n).
        log_hazard: log h_i(t_i), (..., n); it counts for rows with an event.
        sample_weight: (..., n), or None.

    Returns:
        The (weighted) mean, (...), float64, differentiable in the hazards.

    Raises:
        DataError: arguments that cannot be used.

    Examples:
        >>> event = torch.tensor([1, 0])
        >>> log_likelihood(event, torch.tensor([[0.5, 1.0]]), torch.tensor([-1.0, -2.0])).tolist()
        [-1.25]
    """
    check_devices(
        event=event, cumulative_hazard=cumulative_hazard, log_hazard=log_hazard, sample_weight=sample_weight
    )
    shapes = [leading_of("event", event)]
    for name, value in (("cumulative_hazard", cumulative_hazard), ("log_hazard", log_hazard)):
        shapes.append(leading_of(name, value))
        if value.shape[-1] != event.shape[-1]:
            raise DataError(
                f"{name}: expected a tensor of shape (..., {event.shape[-1]}); got {tuple(value.shape)}."
            )
    time = torch.zeros_like(event, dtype=torch.float64)  # the likelihood knows no times
    rows = Problems.of(time, event, sample_weight, *shapes)
    hazard, log_h = (
        value.expand(*rows.shape, value.shape[-1]).reshape(rows.time.shape).double()
        for value in (cumulative_hazard, log_hazard)
    )
    refuse("cumulative_hazard", ~(hazard >= 0), hazard, "values >= 0")
    refuse("log_hazard", log_h.isnan() | log_h.isposinf(), log_h, "values below +inf")
    # Where a row does not count, log h = -inf or H = inf must not make NaN, in the value or in the gradient.
    counted = rows.row_weight > 0
    terms = torch.where(rows.event & counted, log_h, 0.0) - torch.where(counted, hazard, 0.0)
    weight = rows.row_weight
    return rows.result((weight * terms).sum(-1) / weight.sum(-1))
