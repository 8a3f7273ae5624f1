"""Dataclasses of many problems and the selection of some of them."""

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


@pytest.mark.parametrize("some", [torch.tensor([1, 3]), slice(1, 4, 2)])
def test_every_field_keeps_the_problems_that_are_selected(some: Tensor | slice) -> None:
    value, gates = torch.arange(4.0), GateParameters(torch.rand(4, 1, 2), torch.rand(4, 1))
    problems = Problems(value, gates, (value + 1, value + 2), Spline().expand((4,)), None, torch.eye(2))
    chosen = problems.select(some)
    assert chosen.value.tolist() == [1.0, 3.0]
    assert torch.equal(chosen.gates.weight, problems.gates.weight[some])
    assert [part.tolist() for part in chosen.parts] == [[2.0, 4.0], [3.0, 5.0]]
    assert chosen.family.batch_shape == (2,)
    assert chosen.missing is None
    assert chosen.matrix is problems.matrix
    assert chosen.count == 3
