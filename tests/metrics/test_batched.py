"""The tensor forms against the array forms, problem by problem, with padding, broadcasting and float32."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import sstorch.metrics as arrays
import sstorch.metrics.batched.concordance as module
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics import batched
from tests.conftest import devices

from .cohorts import cohorts, scored

CLOSE = 1e-12


def stack(parts, fill=0.0):
    """Rows of several problems as one tensor, padded."""
    width = max(len(part) for part in parts)
    shape = (len(parts), width, *np.shape(parts[0])[1:])
    out = torch.full(shape, fill, dtype=torch.float64)
    for k, part in enumerate(parts):
        out[k, : len(part)] = torch.as_tensor(np.asarray(part, dtype=float))
    return out


@st.composite
def batches(draw):
    """Problems of different sizes on a common grid, with the same number of training rows."""
    problems = draw(st.lists(scored(), min_size=1, max_size=4))
    n_train = draw(st.integers(2, 10))
    trains = [draw(cohorts(min_size=n_train, max_size=n_train)) for _ in problems]
    times = np.unique(np.concatenate([p.times for p in problems] + [[8.0]]))
    seed = draw(st.integers(0, 2**20))
    rng = np.random.default_rng(seed)
    levels = draw(st.sampled_from([4, 1000]))
    out = []
    for problem, train in zip(problems, trains, strict=True):
        n = problem.time.size
        survival = -np.sort(-rng.integers(0, levels + 1, size=(n, times.size)) / levels, axis=1)
        weight = rng.integers(0, 4, n).astype(float)
        weight[rng.integers(n)] = 1.0
        out.append((problem.time, problem.event, survival, weight, train))
    return out, times, draw(st.booleans())


def tensors(problems, times, device="cpu"):
    time, event, survival, weight = (stack([p[k] for p in problems]).to(device) for k in range(4))
    train = tuple(stack([p[4][k] for p in problems]).to(device) for k in range(2))
    return time, event, survival, torch.as_tensor(times, device=device), weight, train


def each(function, problems):
    """The array form of every problem, or None if one of them is refused."""
    try:
        return np.array([function(*p) for p in problems])
    except DataError:
        return None


def check(got_or_error, expected, atol=CLOSE):
    if expected is None:
        with pytest.raises(DataError):
            got_or_error()
    else:
        np.testing.assert_allclose(got_or_error().cpu().numpy(), expected, rtol=0, atol=atol)


@settings(max_examples=80, deadline=None)
@given(
    batches(),
    st.sampled_from(["exclude", "censored_later"]),
    st.sampled_from(["half", "discordant", "exclude"]),
    st.sampled_from([None, 3.0]),
    st.sampled_from(["G(t-)", "G(t)"]),
)
def test_concordances(batch, tied_time, tied_risk, tau, ipcw):
    problems, times, _ = batch
    time, event, survival, grid, weight, train = tensors(problems, times)
    options = {"tied_time": tied_time, "tied_risk": tied_risk, "tau": tau}
    uno = {**options, "ipcw": ipcw}
    # Padding rows have weight 0; the array forms see the rows of each problem only.
    check(
        lambda: batched.concordance_harrell(time, event, survival, grid, sample_weight=weight, **options),
        each(
            lambda t, e, s, w, _: arrays.concordance_harrell(t, e, s, times, sample_weight=w, **options),
            problems,
        ),
    )
    check(
        lambda: batched.concordance_harrell_risk(
            time, event, -survival[..., 0], sample_weight=weight, **options
        ),
        each(
            lambda t, e, s, w, _: arrays.concordance_harrell_risk(t, e, -s[:, 0], sample_weight=w, **options),
            problems,
        ),
    )
    check(
        lambda: batched.concordance_uno(
            time, event, survival, grid, train=train, sample_weight=weight, **uno
        ),
        each(
            lambda t, e, s, w, tr: arrays.concordance_uno(t, e, s, times, train=tr, sample_weight=w, **uno),
            problems,
        ),
    )
    check(
        lambda: batched.concordance_uno_risk(
            time, event, -survival[..., 0], train=train, sample_weight=weight, **uno
        ),
        each(
            lambda t, e, s, w, tr: arrays.concordance_uno_risk(
                t, e, -s[:, 0], train=tr, sample_weight=w, **uno
            ),
            problems,
        ),
    )


@settings(max_examples=100, deadline=None)
@given(batches(), st.sampled_from(["graf", "sksurv", "osst"]), st.sampled_from([None, 0.4]))
def test_brier_scores(batch, convention, floor):
    problems, times, weighted = batch
    time, event, survival, grid, weight, train = tensors(problems, times)
    if not weighted:  # without weights there can be no padding
        problems, time, event = (
            problems[:1],
            time[:1, : len(problems[0][0])],
            event[:1, : len(problems[0][0])],
        )
        survival, train = survival[:1, : len(problems[0][0])], (train[0][:1], train[1][:1])
    options = {"convention": convention, "min_censoring_prob": floor if convention == "graf" else None}
    extra = {"sample_weight": weight} if weighted else {}
    for name in ("brier_score", "integrated_brier_score"):
        check(
            lambda name=name: getattr(batched, name)(
                time, event, survival, grid, train=train, **extra, **options
            ),
            each(
                lambda t, e, s, w, tr, name=name: getattr(arrays, name)(
                    t, e, s, times, train=tr, sample_weight=w if weighted else None, **options
                ),
                problems,
            ),
        )


def example(n=40, n_times=12, batch=(3, 2)):
    rng = np.random.default_rng(0)
    time = rng.integers(1, 20, (*batch, n)).astype(float)
    event = rng.random((*batch, n)) < 0.6
    times = np.linspace(1.0, 20.0, n_times)
    survival = np.exp(-rng.gamma(2.0, 0.03, (*batch, n, 1)) * times)
    train = rng.integers(1, 20, 50).astype(float), rng.random(50) < 0.5
    return time, event, survival, times, train


@devices
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_leading_dimensions_broadcast_on_any_device(device, dtype):
    time, event, survival, times, train = example()
    # Shared rows of a batch of models: time (n,), survival (3, 2, n, n_times), one training set for all.
    rows = [torch.as_tensor(a[0, 0], device=device) for a in (time, event)]
    curves = torch.as_tensor(survival, device=device, dtype=dtype)
    grid, train_rows = (
        torch.as_tensor(times, device=device),
        [torch.as_tensor(a, device=device) for a in train],
    )
    as_given = curves.cpu().numpy()  # float32 predictions are compared and squared as they are
    for name, extra in (
        ("concordance_harrell", {}),
        ("concordance_uno", {"train": train_rows}),
        ("integrated_brier_score", {"train": train_rows}),
        ("brier_score", {"train": train_rows, "convention": "sksurv"}),
    ):
        got = getattr(batched, name)(*rows, curves, grid, **extra)
        assert got.dtype == torch.float64
        assert got.device.type == device
        assert got.shape[:2] == (3, 2)
        extra = {**extra, **({"train": train} if "train" in extra else {})}
        for i, j in np.ndindex(3, 2):
            expected = getattr(arrays, name)(time[0, 0], event[0, 0], as_given[i, j], times, **extra)
            np.testing.assert_allclose(got[i, j].cpu().numpy(), expected, rtol=0, atol=CLOSE)
    risk = -curves[..., 0]
    got = batched.concordance_uno_risk(*rows, risk, train=train_rows)
    for i, j in np.ndindex(3, 2):
        expected = arrays.concordance_uno_risk(time[0, 0], event[0, 0], -as_given[i, j, :, 0], train=train)
        assert got[i, j].item() == pytest.approx(expected, abs=CLOSE)
    assert batched.concordance_harrell_risk(*rows, risk[0, 0]).shape == ()


def test_many_rows_in_blocks(monkeypatch):
    rng = np.random.default_rng(1)
    time, event = rng.integers(1, 300, (2, 700)).astype(float), rng.random((2, 700)) < 0.5
    risk = rng.integers(0, 90, (2, 700)).astype(float)
    got = batched.concordance_harrell_risk(*map(torch.as_tensor, (time, event, risk)))
    expected = [arrays.concordance_harrell_risk(*rows) for rows in zip(time, event, risk, strict=True)]
    assert got.tolist() == pytest.approx(expected, abs=CLOSE)
    monkeypatch.setattr(module, "_BLOCK", 5000)
    curves = torch.exp(-torch.as_tensor(risk + 1)[..., None] * torch.linspace(0.001, 0.01, 7))
    grid = torch.linspace(1.0, 250.0, 7)
    in_curves = batched.concordance_harrell(torch.as_tensor(time), torch.as_tensor(event), curves, grid)
    assert in_curves.tolist() == pytest.approx(expected, abs=CLOSE)


def test_gradients_reach_the_predictions():
    *parts, train = example()
    time, event, survival, times = (torch.as_tensor(part) for part in parts)
    train = [torch.as_tensor(part) for part in train]
    assert torch.autograd.gradcheck(
        lambda s: batched.integrated_brier_score(time, event, s, times, train=train),
        survival.requires_grad_(),
        fast_mode=True,
    )
    hazard = torch.rand(3, 5, dtype=torch.float64, requires_grad=True)
    log_h = torch.tensor([[0.0, -torch.inf, 1.0, 0.5, 0.1]]).double()
    event = torch.tensor([1, 0, 1, 1, 0])
    batched.log_likelihood(event, hazard, log_h).sum().backward()
    assert torch.isfinite(hazard.grad).all()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 4), st.integers(1, 8), st.booleans(), st.integers(0, 2**20))
def test_log_likelihood(n_problems, n, weighted, seed):
    rng = np.random.default_rng(seed)
    event, hazard = rng.random(n) < 0.5, rng.exponential(size=(n_problems, n))
    log_h = np.where(rng.random((n_problems, n)) < 0.2, -np.inf, rng.normal(size=(n_problems, n)))
    weight = rng.integers(0, 3, n).astype(float) + (np.arange(n) == 0) if weighted else None
    got = batched.log_likelihood(
        *map(torch.as_tensor, (event, hazard, log_h)),
        sample_weight=None if weight is None else torch.as_tensor(weight),
    )
    expected = [
        arrays.log_likelihood(event, h, g, sample_weight=weight) for h, g in zip(hazard, log_h, strict=True)
    ]
    np.testing.assert_allclose(got.numpy(), expected, rtol=0, atol=CLOSE)


def test_refusals():
    time, event = torch.tensor([[1.0, 2.0, 3.0]] * 2), torch.tensor([1, 1, 0])
    curves, grid = torch.full((2, 3, 2), 0.5), torch.tensor([1.0, 2.0])
    train = (time[0], event)
    nan = torch.tensor([1.0, torch.nan, 0.0])

    def refused(match, function, *args, error=DataError, **kwargs):
        with pytest.raises(error, match=match):
            function(*args, **kwargs)

    harrell, risk = batched.concordance_harrell, batched.concordance_harrell_risk
    refused(r"risk: expected numbers; got nan in problem 0, row 1", risk, time, event, nan)
    refused(r"risk: expected a tensor of 1 or more dimensions; got ndarray", risk, time, event, np.ones(3))
    refused(r"event: expected True/1.*got 2 in problem 0, row 1", risk, time, time[0], time)
    refused(
        r"time: expected finite times >= 0; got -1 in problem 1",
        risk,
        time - torch.tensor([[0.0], [2.0]]),
        event,
        time,
    )
    refused(
        r"no comparable pair in problem 1, 0 events", risk, time, torch.tensor([[1, 1, 0], [0, 0, 0]]), time
    )
    refused(r"leading dimensions: expected ones that broadcast", risk, time, event, torch.ones(3, 3))
    refused(
        r"survival: expected shape .* \(..., 3, 2\); got \(2, 2, 3\)", harrell, time, event, curves.mT, grid
    )
    refused(r"survival: expected probabilities in \[0, 1\]", harrell, time, event, curves + 1, grid)
    refused(r"survival: expected probabilities.*got nan", harrell, time, event, curves * torch.nan, grid)
    rising = torch.tensor([0.1, 0.9]).expand(2, 3, 2)
    refused(
        r"survival: expected curves that do not rise.*problem 0, row 0", harrell, time, event, rising, grid
    )
    refused(r"times: expected finite, strictly increasing", harrell, time, event, curves, grid.flip(0))
    refused(r"tied_risk: 'gamma' is unknown", risk, time, event, time, tied_risk="gamma", error=ConfigError)
    ibs = batched.integrated_brier_score
    refused(
        r"'graf' integrates up to .* 3 in problem 0; the grid ends at 2",
        ibs,
        time,
        event,
        curves,
        grid,
        train=train,
    )
    refused(
        r"convention: 'surtree' is unknown",
        ibs,
        time,
        event,
        curves,
        grid,
        train=train,
        convention="surtree",
        error=ConfigError,
    )
    refused(
        r"'osst' has no floor",
        ibs,
        time,
        event,
        curves,
        grid,
        train=train,
        convention="osst",
        min_censoring_prob=0.1,
        error=ConfigError,
    )
    refused(
        r"probability in \(0, 1\]; got 2",
        batched.brier_score,
        time,
        event,
        curves,
        grid,
        train=train,
        min_censoring_prob=2.0,
        error=ConfigError,
    )
    refused(
        r"needs two times within.*problem 0 has 0",
        ibs,
        time,
        event,
        curves,
        torch.tensor([3.0, 4.0]),
        train=train,
        convention="sksurv",
    )
    refused(
        r"times: expected a grid within .* up to 3 in problem 0; got 30 to 60.*one unit",
        harrell,
        time,
        event,
        curves,
        30 * grid,
    )
    refused(r"all weights of a problem are 0", risk, time, event, time, sample_weight=torch.zeros(3))
    refused(r"cumulative_hazard: expected values >= 0; got -1", batched.log_likelihood, event, -time, time)
    refused(r"time: expected a tensor of 1 or more dimensions; got list", risk, [1.0, 2.0], event, time)
    refused(r"risk: expected a tensor of shape \(..., 3\); got \(2,\)", risk, time, event, grid)
    refused(
        r"survival: expected a tensor of 2 or more dimensions; got shape \(3,\)",
        harrell,
        time,
        event,
        time[0],
        grid,
    )
    refused(r"times: expected a tensor of 1 or more", ibs, time, event, curves, [1.0, 2.0], train=train)
    refused(
        r"train: expected the pair \(time, event\) of the training rows.*; got NoneType",
        ibs,
        time,
        event,
        curves,
        grid,
        train=None,
    )
    refused(r"train event: expected a tensor", ibs, time, event, curves, grid, train=(time[0], [1, 1, 0]))
    refused(
        r"log_hazard: expected a tensor of 1 or more dimensions; got NoneType",
        batched.log_likelihood,
        event,
        time,
        None,
    )
