"""The gate for tensors: shapes, ranges, and one leading dimension."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sstorch.exceptions import DataError
from sstorch.metrics.probabilities import rounding_of

_MIN_ROWS_FOR_UNITS = 20


Train = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]


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


def check_devices(**tensors: object) -> None:
    """Refuse tensors without values and tensors on different devices.

    Args:
        **tensors: arguments by name; tuples are looked into, what is no tensor is passed over.

    Raises:
        DataError: such tensors.
    """
    flat_parts = [
        (name, part)
        for name, value in tensors.items()
        for part in (value if isinstance(value, tuple | list) else (value,))
        if isinstance(part, Tensor)
    ]
    devices = {name: str(part.device) for name, part in flat_parts}
    if len({part.device for _, part in flat_parts}) > 1:
        where = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise DataError(f"{', '.join(devices)}: expected tensors on one device; got {where}.")
    if flat_parts and flat_parts[0][1].is_meta:
        raise DataError(f"{flat_parts[0][0]}: expected a tensor with values; got one on the device meta.")


def leading_of_train(train: object) -> torch.Size:
    """The leading dimensions of the training rows.

    Raises:
        DataError: neither a pair nor a triple of tensors.
    """
    if not isinstance(train, tuple | list) or len(train) not in (2, 3):
        got = f"{len(train)} items" if isinstance(train, tuple | list) else type(train).__name__
        raise DataError(
            "train: expected the pair (time, event) of the training rows, or (time, event, weight); "
            f"got {got}."
        )
    names = ("train time", "train event", "train weight")
    return leading(*[leading_of(name, part) for name, part in zip(names, train, strict=False)])


def train_rows(train: Train, rows: Problems) -> Problems:
    """The training rows with the leading dimension of the test rows, in the same unit of time.

    Padding, rows of weight 0, is moved to the last time of the others, where it changes nothing.

    Raises:
        DataError: times, events and weights out of range, or times in another unit.
    """
    given = Problems.of(train[0], train[1], train[2] if len(train) == 3 else None)
    time, event, weight = (
        None if part is None else flat(given.result(part), rows.shape)
        for part in (given.time, given.event, given.weight)
    )
    assert time is not None  # for the type checker: only the weight may be None
    assert event is not None
    if weight is not None:
        seen = weight > 0
        time = torch.where(seen, time, torch.where(seen, time, 0.0).amax(-1, keepdim=True))
        event = event & seen
    found = Problems(rows.shape, time, event, weight)
    _check_same_unit(rows.time, rows.row_weight > 0, found.time, found.row_weight > 0, ("time", "train time"))
    return found


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
    curves = survival.expand(*shape, *survival.shape[-2:]).reshape(shape.numel(), *survival.shape[-2:])
    seen = curves.detach()
    rounding = rounding_of(torch.finfo(seen.dtype).eps if seen.is_floating_point() else 0.0, "survival")
    wrong = ~((seen >= -rounding) & (seen <= 1.0 + rounding))  # NaN is wrong as well
    refuse("survival", wrong, seen, "probabilities in [0, 1], not risk and not hazard")
    if seen.numel() and bool((seen[..., 1:] > seen[..., :-1]).any()):
        rises = seen - seen.cummin(dim=-1).values > rounding
        refuse("survival", rises, seen, "curves that do not rise with t")
    return curves, flat(grid, shape)


def check_overlap(rows: Problems, grid: Tensor) -> None:
    """Refuse a grid (b, n_times) that does not overlap the observed times of a problem, or hardly does.

    Raises:
        DataError: such a problem; the rule is that of `sstorch.metrics.units.check_grid_unit`.
    """
    seen = rows.row_weight > 0
    last = torch.where(seen, rows.time, -torch.inf).amax(-1)
    first = torch.where(seen, rows.time, torch.inf).amin(-1)
    outside = (grid[:, 0] > last) | (grid[:, -1] < first)
    if bool(outside.any()):
        problem = int(outside.nonzero()[0])
        raise DataError(
            f"times: expected a grid within the observed times, {first[problem].item():g} up to "
            f"{last[problem].item():g} in problem {problem}; got {grid[problem, 0].item():g} to "
            f"{grid[problem, -1].item():g}. Are both in one unit?"
        )
    every = torch.ones_like(grid, dtype=torch.bool)
    _refuse_below(grid, every, rows.time, seen & rows.event, ("times", "event times"))
    _refuse_below(rows.time, seen, grid, every, ("time", "times"))


def _check_same_unit(
    time: Tensor, seen: Tensor, other: Tensor, other_seen: Tensor, names: tuple[str, str]
) -> None:
    """As `sstorch.metrics.units.check_same_unit`, per problem; unmarked entries do not count."""
    _refuse_below(time, seen, other, other_seen, names)
    _refuse_below(other, other_seen, time, seen, (names[1], names[0]))


def _refuse_below(
    low: Tensor, low_seen: Tensor, high: Tensor, high_seen: Tensor, names: tuple[str, str]
) -> None:
    if min(low.shape[-1], high.shape[-1]) < _MIN_ROWS_FOR_UNITS or low.shape[0] == 0:
        return
    count = high_seen.sum(-1, keepdim=True)
    enough = (low_seen.sum(-1) >= _MIN_ROWS_FOR_UNITS) & (count[:, 0] >= _MIN_ROWS_FOR_UNITS)
    ordered = torch.where(high_seen, high, torch.inf).sort(dim=-1).values
    quantile = ordered.gather(-1, ((count - 1).clamp(min=0) * 0.05).long())[:, 0]
    largest = torch.where(low_seen, low, -torch.inf).amax(-1)
    wrong = enough & (largest < quantile)
    if bool(wrong.any()):
        problem = int(wrong.nonzero()[0])
        raise DataError(
            f"{names[0]} and {names[1]}: expected times in one unit; got times up to "
            f"{largest[problem].item():g} and 95 % of times from {quantile[problem].item():g} on in problem "
            f"{problem}. Are these days and years?"
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
    return value.expand(*shape, value.shape[-1]).reshape(shape.numel(), value.shape[-1]).contiguous()


def refuse(name: str, wrong: Tensor, values: Tensor, expected: str) -> None:
    """Raise for the first marked entry of (b, n) or (b, n, n_times).

    Raises:
        DataError: something is marked.
    """
    if bool(wrong.any()):
        problem, row, *column = wrong.nonzero()[0].tolist()
        at = f", position {column[0]}" if column else ""
        raise DataError(
            f"{name}: expected {expected}; got {values[(problem, row, *column)].item():g} in problem "
            f"{problem}, row {row}{at}."
        )
