"""Running counts and ranks of batches, and the concordance that they amount to."""

import torch
from torch import Tensor

from sstorch.exceptions import DataError
from sstorch.metrics.batched.arguments import Problems

# Weighted sums of the same pairs in another order agree to this share.
_ROUNDING = 1e-12


def share(rows: Problems, concordant: Tensor, tied: Tensor, total: Tensor, tied_risk: str) -> Tensor:
    """Concordance of each problem from the weights of its pairs, each (b,).

    Raises:
        DataError: a problem without comparable pair.
    """
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


def running(values: Tensor) -> Tensor:
    """Sums of the first 0, 1, ..., n entries, (b, n) -> (b, n + 1)."""
    return torch.cat((torch.zeros_like(values[:, :1]), values.cumsum(-1)), dim=-1)


def dense_rank(values: Tensor) -> Tensor:
    """0 for the smallest value of a problem, 1 for the next, equal values alike, (b, n)."""
    ordered, order = values.sort(dim=-1)
    steps = torch.cat((torch.zeros_like(order[:, :1]), (ordered[:, 1:] > ordered[:, :-1]).long()), dim=-1)
    return torch.empty_like(order).scatter_(-1, order, steps.cumsum(-1))
