"""The gate for tensors: shapes, ranges, and one leading dimension."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sstorch.exceptions import DataError

_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Problems:
    """Test rows of a batch, leading dimensions joined into one of size b.

    Attributes:
        shape: the leading dimensions of the results.
        time: float64, (b, n).
        event: bool, (b, n).
        weight: float64, (b, n), or None for one each.
    """

    shape: torch.Size
    time: Tensor
    event: Tensor
    weight: Tensor | None

    @classmethod
    def of(cls, time: Tensor, event: Tensor, sample_weight: Tensor | None, *others: torch.Size) -> "Problems":
        """Check the rows and broadcast them against the leading dimensions of the other arguments.

        Raises:
            DataError: no tensors, shapes that do not fit, or times, events and weights out of range.
        """
        for name, value in (("time", time), ("event", event), ("sample_weight", sample_weight)):
            if value is None and name == "sample_weight":
                continue
            if not isinstance(value, Tensor) or value.ndim == 0 or value.shape[-1] == 0:
                got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise DataError(f"{name}: expected a tensor of shape (..., n), n > 0; got {got}.")
        n = time.shape[-1]
        rows = [time, event] if sample_weight is None else [time, event, sample_weight]
        if any(value.shape[-1] != n for value in rows):
            raise DataError(
                "time, event, sample_weight: expected as many rows in each; got "
                f"{[v.shape[-1] for v in rows]}."
            )
        shape = leading(*[value.shape[:-1] for value in rows], *others)
        times = flat(time.detach().double(), shape)
        events = flat(event.detach(), shape)
        refuse("time", ~(torch.isfinite(times) & (times >= 0)), times, "finite times >= 0")
        refuse("event", (events != 0) & (events != 1), events, "True/1 (observed) or False/0 (censored)")
        weight = None
        if sample_weight is not None:
            weight = flat(sample_weight.detach().double(), shape)
            refuse("sample_weight", ~(torch.isfinite(weight) & (weight >= 0)), weight, "finite weights >= 0")
            if not bool((weight > 0).any(-1).all()):
                raise DataError(
                    "sample_weight: all weights of a problem are 0, no row is left to average over."
                )
        return cls(shape, times, events.bool(), weight)

    @property
    def row_weight(self) -> Tensor:
        """The weights, ones where none were given, (b, n)."""
        return torch.ones_like(self.time) if self.weight is None else self.weight

    def result(self, value: Tensor) -> Tensor:
        """(b, ...) with the leading dimensions back."""
        return value.reshape(self.shape + value.shape[1:])


def leading_of(name: str, value: object, n_last: int = 1) -> torch.Size:
    """The leading dimensions of a tensor whose last ones are its own.

    Raises:
        DataError: no tensor, or one of too few dimensions.
    """
    if not isinstance(value, Tensor) or value.ndim < n_last:
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise DataError(f"{name}: expected a tensor of {n_last} or more dimensions; got {got}.")
    return value.shape[:-n_last]


def leading_of_train(train: object) -> torch.Size:
    """The leading dimensions of the training rows.

    Raises:
        DataError: not a pair of tensors.
    """
    if not isinstance(train, tuple | list) or len(train) != 2:
        got = f"{len(train)} items" if isinstance(train, tuple | list) else type(train).__name__
        raise DataError(f"train: expected the pair (time, event) of the training rows; got {got}.")
    return leading(leading_of("train time", train[0]), leading_of("train event", train[1]))


def train_rows(train: tuple[Tensor, Tensor], shape: torch.Size) -> tuple[Tensor, Tensor]:
    """The training rows, (b, n_train) each.

    Raises:
        DataError: times and events out of range.
    """
    rows = Problems.of(train[0], train[1], None)
    return flat(rows.result(rows.time), shape), flat(rows.result(rows.event), shape)


def curves_on_grid(survival: Tensor, times: Tensor, n: int, shape: torch.Size) -> tuple[Tensor, Tensor]:
    """Curves (b, n, n_times) and their grid (b, n_times) as float64.

    Raises:
        DataError: shapes that do not fit, a grid that does not increase, or values that are no survival
            curves.
    """
    grid = times.detach().double() if isinstance(times, Tensor) else torch.empty(0)
    if grid.ndim == 0 or grid.shape[-1] == 0:
        raise DataError("times: expected a tensor of shape (n_times,) or (..., n_times), n_times > 0.")
    if not bool(torch.isfinite(grid).all()) or bool((grid < 0).any()) or bool((grid.diff() <= 0).any()):
        raise DataError("times: expected finite, strictly increasing times >= 0.")
    if not isinstance(survival, Tensor) or survival.shape[-2:] != (n, grid.shape[-1]):
        got = tuple(survival.shape) if isinstance(survival, Tensor) else type(survival).__name__
        raise DataError(
            f"survival: expected shape (..., n, n_times) = (..., {n}, {grid.shape[-1]}); got {got}."
        )
    curves = survival.expand(*shape, *survival.shape[-2:]).reshape(-1, *survival.shape[-2:])
    seen = curves.detach()
    rounding = max(_ROUNDING, 16.0 * torch.finfo(seen.dtype).eps) if seen.is_floating_point() else _ROUNDING
    wrong = ~((seen >= -rounding) & (seen <= 1.0 + rounding))  # NaN is wrong as well
    refuse("survival", wrong.any(-1), seen.amax(-1), "probabilities in [0, 1], not risk and not hazard")
    refuse(
        "survival", (seen.diff(dim=-1) > rounding).any(-1), seen.amax(-1), "curves that do not rise with t"
    )
    return curves, flat(grid, shape)


def check_overlap(rows: Problems, grid: Tensor) -> None:
    """Refuse a grid (b, n_times) that begins after the last observed time of a problem.

    Raises:
        DataError: such a problem.
    """
    last = rows.time.amax(-1, keepdim=True)
    if bool((grid[:, :1] > last).any()):
        problem = int((grid[:, 0] > last[:, 0]).nonzero()[0])
        raise DataError(
            f"times: expected a grid within the observed times, up to {last[problem].item():g} in problem "
            f"{problem}; got {grid[problem, 0].item():g} to {grid[problem, -1].item():g}. Are both "
            "in one unit?"
        )


def leading(*shapes: torch.Size) -> torch.Size:
    """The leading dimensions that all arguments broadcast to.

    Raises:
        DataError: they do not.
    """
    try:
        shape: torch.Size = torch.broadcast_shapes(*shapes)
    except RuntimeError as error:
        raise DataError(
            f"leading dimensions: expected ones that broadcast; got {[tuple(s) for s in shapes]}."
        ) from error
    return shape


def flat(value: Tensor, shape: torch.Size) -> Tensor:
    """(..., n) broadcast to the leading shape, which becomes one dimension."""
    return value.expand(*shape, value.shape[-1]).reshape(-1, value.shape[-1]).contiguous()


def refuse(name: str, wrong: Tensor, values: Tensor, expected: str) -> None:
    """Raise for the first marked entry of (b, n).

    Raises:
        DataError: something is marked.
    """
    if bool(wrong.any()):
        problem, row = wrong.nonzero()[0].tolist()
        raise DataError(
            f"{name}: expected {expected}; got {values[problem, row].item():g} in problem {problem}, "
            f"row {row}."
        )
