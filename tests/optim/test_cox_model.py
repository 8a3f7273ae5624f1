"""Batched Cox models against lifelines, and their gradient against finite differences."""

import numpy as np
import pandas as pd
import pytest
import torch
from lifelines import CoxPHFitter

from sstorch.optim.starts.cox import _PartialLikelihood, cox_cumulative_hazards


def _rows(seed: int, n: int, late: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draws = np.random.default_rng(seed)
    x = draws.normal(size=(n, 3)) * [1.0, 10.0, 0.1]
    time = draws.exponential(np.exp(-0.8 * x[:, 0])) + 0.01
    entry = np.where(draws.random(n) < 0.4, 0.5 * time, 0.0) if late else np.zeros(n)
    return x, time, entry


@pytest.mark.parametrize("late", [False, True], ids=["from_zero", "late_entry"])
def test_cumulative_hazards_are_breslows_at_the_coefficients_of_lifelines(late: bool) -> None:
    # Without ties Breslow's and Efron's likelihoods are the same.
    sizes, longest = (40, 61, 25), 61
    x, time = torch.zeros(3, longest, 4).double(), torch.ones(3, longest).double()
    entry, weight = torch.zeros_like(time), torch.zeros_like(time)
    expected = []
    for k, n in enumerate(sizes):
        own_x, own_time, own_entry = _rows(k, n, late)
        x[k, :n, :3], time[k, :n], entry[k, :n] = map(torch.as_tensor, (own_x, own_time, own_entry))
        weight[k, :n] = 1.0
        frame = pd.DataFrame(own_x).assign(time=own_time, entry=own_entry)
        model = CoxPHFitter(penalizer=0.05)
        if late:
            model.fit(frame, "time", entry_col="entry")
        else:
            model.fit(frame.drop(columns="entry"), "time")
        relative = np.exp(own_x @ model.params_.to_numpy())
        steps = [relative[(own_entry < t) & (own_time >= t)].sum() ** -1 for t in own_time]
        baseline = np.array([np.sum(steps, where=own_time <= t) for t in own_time])
        expected.append(baseline * relative)
    found = cox_cumulative_hazards(x, time, entry, weight, 0.05)
    for k, n in enumerate(sizes):
        np.testing.assert_allclose(found[k, :n], expected[k], rtol=2e-4)
        assert (found[k, n:] == 0).all()


def test_ties_and_late_entries_against_the_sum_over_pairs() -> None:
    x, time, entry = _rows(1, 20, late=True)
    time, entry = np.ceil(4 * time), np.floor(4 * entry)
    order = np.argsort(time, kind="stable")
    x, time, entry = x[order], time[order], entry[order]
    beta = np.array([0.5, 0.02, -1.0])
    score = x @ beta
    expected = np.mean(
        [np.log(np.exp(score[(entry < t) & (time >= t)]).sum()) - s for t, s in zip(time, score, strict=True)]
    )
    whole = [torch.as_tensor(part)[None] for part in (x, time, entry, np.ones(20))]
    value, _ = _PartialLikelihood.of(*whole, 0.0).value_and_gradient(torch.as_tensor(beta)[None])
    assert float(value) == pytest.approx(expected, rel=1e-12)
