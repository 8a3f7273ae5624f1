"""A user's family is checked before it is trained."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from sstorch import SurvivalRegression
from sstorch.exceptions import ConfigError
from sstorch.nn import FAMILIES, HazardFamily, check_family, make_family


class Wrong(HazardFamily):
    name, shape_names = "wrong", ("log_a",)

    def __init__(self, hazard: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.hazard = hazard

    def cumulative_hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        return self.hazard(log_time, linear, shape[..., 0])


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_families_of_the_package_are_hazards(name: str) -> None:
    rng = np.random.default_rng(0)
    log_time = torch.as_tensor(rng.normal(size=(1, 200)))
    event = torch.as_tensor(rng.random((1, 200)) < 0.7).double()
    family = make_family(name).prepare(log_time, event, torch.ones_like(event), torch.zeros(1).double())
    check_family(family.select(0))


@pytest.mark.parametrize(
    ("hazard", "message"),
    [
        (lambda y, g, s: torch.exp(g - y) + 0 * s, "falls with time"),
        (lambda y, g, s: torch.exp(s.exp() * y + g) + 1, "not 0 at time zero"),
        (lambda y, g, s: y + g + 0 * s, "negative"),
        (lambda y, g, s: torch.exp(s.exp().detach() * y + g), "derivatives of the loss differ"),
        (lambda y, g, s: torch.exp(s.exp() * y + g).sum(-1), "must be elementwise"),
        (lambda y, g, s: torch.exp(s.exp() * y + g).float(), "keep the dtype"),
        (lambda y, g, s: 1 / 0, "fails on tensors"),
    ],
)
def test_what_is_no_hazard_raises_before_training(
    hazard: Callable[[Tensor, Tensor, Tensor], Tensor], message: str
) -> None:
    rng = np.random.default_rng(0)
    x, time = rng.normal(size=(60, 2)), rng.exponential(size=60)
    with pytest.raises(ConfigError, match=message):
        SurvivalRegression(Wrong(hazard)).fit(x, (time, np.ones(60, bool)))
