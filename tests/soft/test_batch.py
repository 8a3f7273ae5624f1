"""One batch of settings compared with a batch for each of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sstorch import SoftSurvivalTree, SurvivalData
from sstorch.optim import Joint, LBFGSOptions, Nodec
from sstorch.optim.starts import clusters as initialization
from sstorch.soft import Coefficients, train_batch

GRID = [Coefficients(ridge, gate_ridge) for ridge in (1e-3, 0.1) for gate_ridge in (1e-3, 0.01)]


# Long runs over rough ground amplify rounding; so many iterations of all parameters do not.
SHORT = Joint(LBFGSOptions(max_iterations=15))


@pytest.mark.parametrize(("depth", "trainer"), [(0, "nodec"), (1, Joint()), (2, SHORT)])
def test_settings_are_a_dimension_of_the_batch(
    small_data: SurvivalData, depth: int, trainer: str | Joint
) -> None:
    """Each tree is that of a batch of its own setting."""
    splits = [small_data.subset(range(90)), small_data.subset(range(30, 120))]
    settings = SoftSurvivalTree(depth=depth, trainer=trainer, init="random", n_starts=2)._batch_settings()
    batch = train_batch(splits, settings, coefficients=GRID)
    assert batch.tree.n_problems == 2 * len(GRID) * 2
    for k, own in enumerate(GRID):
        changed = replace(settings, ridge=own.ridge, gate_ridge=own.gate_ridge)
        assert changed.coefficients == own
        alone = train_batch(splits, changed)
        for split in range(2):
            there = torch.tensor([batch.position(split, start, k) for start in range(2)])
            here = torch.tensor([alone.position(split, start) for start in range(2)])
            # Starts may end in one point, or in its mirror image: rounding says which is the best.
            both = [batch.best_start(split, k), alone.best_start(split)]
            best, other = alone.objective[here[both]]
            torch.testing.assert_close(best, other, rtol=1e-6, atol=1e-8)
            torch.testing.assert_close(batch.objective[there], alone.objective[here], rtol=1e-6, atol=1e-8)
            rows = torch.as_tensor(batch.preprocessors[split].transform(small_data.frame))
            times = torch.tensor([5.0, 20.0, 60.0], dtype=torch.float64)
            curves, others = (
                found.tree.select(some)(rows).most_probable().survival(times)
                for found, some in ((batch, there), (alone, here))
            )
            torch.testing.assert_close(curves, others, rtol=0, atol=1e-3 if depth else 1e-5)


def test_settings_begin_from_the_same_partitions_found_once(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    partition = initialization._partition
    monkeypatch.setattr(initialization, "_partition", lambda *a: (found.append(1), partition(*a))[1])
    settings = SoftSurvivalTree(
        depth=1, trainer=Nodec(macro_iterations=1), init="kmeans", n_starts=2
    )._batch_settings()
    batch = train_batch([small_data], settings, coefficients=GRID)
    assert len(found) == 2 * 10
    first = batch.history.macro_iterations.query("macro_iteration == 0").set_index("problem")["mass_2"]
    masses = first.to_numpy().reshape(len(GRID), 2)
    np.testing.assert_array_equal(masses, np.broadcast_to(masses[0], masses.shape))
    assert masses[0, 0] != masses[0, 1]
