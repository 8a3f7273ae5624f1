"""Dataclasses of many problems and the selection of some of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from sstorch.batched import SHARED, Batched
from sstorch.nn import GateParameters, Spline


@dataclass(frozen=True)
class Problems(Batched):
    value: Tensor
    gates: GateParameters
    parts: tuple[Tensor, ...]
    family: Spline
    missing: Tensor | None
    matrix: Tensor = field(metadata=SHARED)
    count: int = field(default=3, metadata=SHARED)


def _problems() -> Problems:
    value = torch.arange(4.0)
    family = Spline().expand((4,))
    gates = GateParameters(torch.rand(4, 1, 2), torch.rand(4, 1))
    return Problems(value, gates, (value + 1, value + 2), family, None, torch.eye(2))


@pytest.mark.parametrize("some", [torch.tensor([1, 3]), slice(1, 4, 2)])
def test_every_field_keeps_the_problems_that_are_selected(some: Tensor | slice) -> None:
    problems = _problems()
    chosen = problems.select(some)
    assert type(chosen) is Problems
    assert chosen.value.tolist() == [1.0, 3.0]
    assert torch.equal(chosen.gates.weight, problems.gates.weight[some])
    assert [part.tolist() for part in chosen.parts] == [[2.0, 4.0], [3.0, 5.0]]
    assert chosen.family.batch_shape == (2,)
    assert chosen.missing is None


def test_shared_fields_stay_as_they_are() -> None:
    problems = _problems()
    chosen = problems.select(slice(2))
    assert chosen.matrix is problems.matrix
    assert chosen.count == 3


def test_a_field_that_is_neither_batched_nor_shared_is_an_error() -> None:
    @dataclass
    class Unmarked(Batched):
        count: int = 1

    with pytest.raises(AttributeError, match="select"):
        Unmarked().select(slice(1))
