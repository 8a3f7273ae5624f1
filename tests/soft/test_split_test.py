"""Tests of a leaf's regression against splits: their definition, their level and their power."""

import numpy as np
import pandas as pd
import pytest
import torch

from sstorch import (
    Columns,
    OptimalSurvivalTree,
    Penalties,
    PrognosticTree,
    SoftSurvivalTree,
    Surv,
    SurvivalData,
)
from sstorch.data import Schema
from sstorch.exceptions import ConfigError, DataError
from sstorch.metrics.censoring import censoring_distribution
from sstorch.nn import HazardFamily, make_family
from sstorch.soft import train_batch
from sstorch.soft.leaf_likelihood import LeafLikelihood, _design
from sstorch.soft.split_test import leaf_tests
from sstorch.validation import SplitTest, split_test
from tests.conftest import nightly_but

REGRESSION = SoftSurvivalTree(depth=0, trainer="joint", init="random", n_starts=1)
PLAIN = SoftSurvivalTree(
    depth=0, leaf="exponential", trainer="joint", init="random", n_starts=1, penalties=Penalties(ridge=0.0)
)


def _simulated(
    n: int, seed: int, change: float = 0.0, late: bool = False
) -> tuple[pd.DataFrame, tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Skewed, straight and categorical columns; the slope of ``a`` changes where ``b`` passes .6."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.uniform(size=n), "c": rng.exponential(size=n)})
    frame["d"] = rng.choice(["x", "y", "z"], n)
    location = 0.5 * frame["a"] - 0.4 * frame["c"] + change * frame["a"] * (frame["b"] > 0.6)
    u = rng.uniform(size=n)
    time, censoring = np.exp(location) * (u / (1 - u)) ** 0.6, 3 * rng.exponential(size=n)
    seen = np.minimum(time, censoring).to_numpy()
    entry = 0.5 * seen * rng.uniform(size=n) * rng.integers(0, 2, n) * late
    return frame, (seen, (time <= censoring).to_numpy()), entry


def _exponential_rates(
    x: np.ndarray, exposure: np.ndarray, event: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Hazards at the maximum of the likelihood, by Newton's method."""
    theta = np.zeros(x.shape[1])
    for _ in range(30):
        expected = weight * exposure * np.exp(x @ theta)
        theta += np.linalg.pinv((x * expected[:, None]).T @ x, rcond=1e-8) @ (
            x.T @ (weight * event - expected)
        )
    return np.exp(x @ theta)


@pytest.mark.parametrize("parameters", ["all", "level"])
def test_statistics_and_p_are_those_of_the_definition(parameters: str) -> None:
    """Exponential hazards, whose scores are written down here, with weights and entry times."""
    n, n_draws = 60, 19
    frame, (time, event), entry = _simulated(n, seed=0, late=True)
    frame["c"] = frame["c"].round(1)  # ties
    weight = np.random.default_rng(1).uniform(0.5, 2, n)
    y = Surv(time, event, entry=entry)
    tree = PLAIN.fit(frame, y, sample_weight=weight)
    test = split_test(tree, frame, y, None, parameters, weight, n_draws=n_draws)

    x = np.column_stack([frame[["a", "b", "c"]], pd.get_dummies(frame["d"]), np.ones(n)])
    rate = _exponential_rates(x, time - entry, event, weight)
    # Draws: event times given entry; follow-up of rows with events by Kaplan-Meier.
    u, v = np.moveaxis(np.random.default_rng(0).random((n_draws, n, 2)), 2, 0)
    drawn, g = entry - np.log(1 - u) / rate, censoring_distribution(y)
    followed = np.tile(time, (n_draws, 1))
    for k, i in np.argwhere(np.tile(event, (n_draws, 1))):
        longer = g.times[g.values <= g.at(time[i]) * v[k, i]]
        followed[k, i] = longer[0] if len(longer) else time.max()
    outcomes = [(time, event), *zip(np.minimum(drawn, followed), drawn <= followed, strict=True)]
    tested = np.arange(x.shape[1]) >= (0 if parameters == "all" else x.shape[1] - 1)

    def drifts(time: np.ndarray, event: np.ndarray, groups: list[np.ndarray]) -> list[float]:
        expected = _exponential_rates(x, time - entry, event, weight) * (time - entry)
        scores = ((weight * (event - expected))[:, None] * x)[:, tested]
        inverse = np.linalg.pinv(scores.T @ scores / n, rcond=1e-8)
        return [total @ inverse @ total for total in (scores[group].sum(0) for group in groups)]

    brute, table = pd.DataFrame(index=range(n_draws + 1)), test.table.loc[1].loc[list("abcd")]
    for name in "abcd":
        column = frame[name].to_numpy()
        cuts = np.unique(column) if name == "d" else np.unique(column)[:-1]
        groups = [column == cut if name == "d" else column <= cut for cut in cuts]
        if name != "d":
            groups = [group for group in groups if 6 <= group.sum() <= 54]
        squares = np.array([drifts(*outcome, groups) for outcome in outcomes])
        usual = squares.mean(0)
        squares = np.where(usual > 1e-9, squares / usual, 0.0)
        brute[name] = squares.mean(axis=1) if name == "d" else squares.max(axis=1)
        if name != "d":
            left = groups[int(squares[0].argmax())]
            assert table.loc[name, "at"] == pytest.approx((column[left].max() + column[~left].min()) / 2)
    np.testing.assert_allclose(table["statistic"], brute.loc[0], rtol=1e-3)
    p = brute.rank(ascending=False, method="max") / (n_draws + 1)
    np.testing.assert_allclose(table["p"], p.loc[0])
    smallest = p.min(axis=1).to_numpy()
    np.testing.assert_allclose(table["adjusted p"], [(smallest <= value).mean() for value in p.loc[0]])
    assert test.overall[1] == table["adjusted p"].min()


@pytest.mark.nightly
def test_level_is_kept_although_all_columns_have_slopes() -> None:
    """150 data sets without a change, one column skewed."""
    splits = []
    for seed in range(150):
        frame, y, _ = _simulated(120, seed)
        splits.append(SurvivalData(frame, y))
    batch = train_batch(splits, REGRESSION._batch_settings(), Schema.of(splits[0].frame))
    p = np.array(
        [leaf_tests(batch.fitted(k, 0), data, n_draws=99, seed=k).overall[1] for k, data in enumerate(splits)]
    )
    assert 0.005 <= (p <= 0.05).mean() <= 0.1
    assert p.mean() == pytest.approx(0.5, abs=0.1)


@pytest.mark.nightly
def test_a_change_of_slopes_is_found_where_it_is() -> None:
    frame, y, _ = _simulated(400, seed=2, change=-1.0)
    tree = REGRESSION.fit(frame, y)
    test = split_test(tree, frame, y)
    assert test.table.index[0] == (1, "b")
    assert test.pays(0.01)
    assert test.table.loc[(1, "b"), "at"] == pytest.approx(0.6, abs=0.05)
    assert test.table.loc[1].loc[["c", "d"], "adjusted p"].min() > 0.05
    # The mean effect of the change is none: a test of levels alone has nothing to find.
    assert not split_test(tree, frame, y, parameters="level").pays()


@pytest.mark.nightly
def test_a_change_of_levels_is_found_by_both_versions() -> None:
    frame, (time, event), _ = _simulated(400, seed=3)
    changed = time * np.where((frame["b"] > 0.3) & (frame["b"] < 0.7), 4.0, 1.0)  # not a straight line
    tree = REGRESSION.fit(frame, (changed, event))
    for parameters in ("all", "level"):
        test = split_test(tree, frame, (changed, event), parameters=parameters)
        assert test.table.index[0] == (1, "b")
        assert test.pays(0.01)


@pytest.mark.nightly
def test_penalties_do_not_pass_for_a_change() -> None:
    """A strong ridge leaves scores with a drift; the test is at the maximum of the likelihood."""
    frame, y, _ = _simulated(300, seed=4)
    tree = SoftSurvivalTree(depth=0, trainer="joint", init="random", n_starts=1)
    tests = [
        split_test(tree.set_params(penalties=Penalties(ridge=ridge)).fit(frame, y), frame, y)
        for ridge in (1e-8, 3e-2)
    ]
    free, shrunk = (test.table.sort_index() for test in tests)
    np.testing.assert_allclose(shrunk["statistic"], free["statistic"], rtol=1e-3)
    assert not tests[1].pays()


def test_units_and_twins_of_columns_do_not_matter() -> None:
    frame, y, _ = _simulated(150, seed=5)
    free = SoftSurvivalTree(
        depth=0, trainer="joint", init="random", n_starts=1, penalties=Penalties(ridge=1e-9)
    )
    first = split_test(free.fit(frame, y), frame, y).table
    other = frame.assign(b=1000 * frame["b"] - 7, e=frame["c"])
    second = split_test(free.fit(other, y), other, y).table
    order = first.index
    np.testing.assert_allclose(second.loc[order, "statistic"], first["statistic"], rtol=1e-3)
    assert second.loc[(1, "e"), "statistic"] == pytest.approx(second.loc[(1, "c"), "statistic"])
    # The search over two equal columns is that over one.
    np.testing.assert_allclose(second.loc[order, "adjusted p"], first["adjusted p"], atol=0.01)


def test_each_leaf_is_tested_on_its_own_rows(small_data: SurvivalData) -> None:
    y = (small_data.time, small_data.event)
    tree = SoftSurvivalTree(
        depth=1, trainer="joint", init="kmeans", n_starts=2, penalties=Penalties(ridge=1e-2)
    )
    tree = tree.fit(small_data.frame, y)
    test = split_test(tree, small_data.frame, y, n_draws=19)
    leaves = tree.apply(small_data.frame)
    assert test.rows.to_dict() == dict(zip(*np.unique(leaves, return_counts=True), strict=True))
    assert set(test.table.index.get_level_values("column")) == set(small_data.feature_names)
    last = int(test.rows.index[-1])
    alone = split_test(tree, small_data.frame, y, group=last, n_draws=19)
    pd.testing.assert_frame_equal(alone.table.loc[last], test.table.loc[last])
    text = str(test).splitlines()
    assert text[0].startswith(f"group {test.rows.index[0]}, {test.rows.iloc[0]} rows: parameters ")
    assert text[1].split() == ["statistic", "at", "p", "adjusted", "p"]
    assert text[-1].startswith("Each group is tested at level 0.05")
    assert text[-1].endswith("The same rows have placed the gates: p-values are too small, test other rows")
    others = small_data.subset(np.arange(1, len(small_data)))
    text = str(split_test(tree, others.frame, others.y, group=last, n_draws=19))
    assert "placed the gates" not in text


def test_columns_that_cannot_split_are_not_counted() -> None:
    frame, y, _ = _simulated(100, seed=6)
    frame["same"], frame["rare"] = 1.0, np.r_[np.ones(3), np.zeros(97)]
    frame.loc[:20, "b"], frame.loc[:20, "d"] = np.nan, None
    test = split_test(REGRESSION.fit(frame, y), frame, y, n_draws=19)
    assert test.table.loc[1].loc[["same", "rare"]].isna().all(axis=None)
    assert test.table.loc[1].loc[list("abc")].notna().all(axis=None)
    only = frame[["same"]]
    nothing = split_test(REGRESSION.fit(only, y), only, y, n_draws=19)
    assert nothing.overall[1] == 1.0
    assert not nothing.pays()


def test_rows_of_weight_zero_are_not_there_and_the_seed_decides() -> None:
    frame, y, _ = _simulated(150, seed=7)
    weight = np.r_[np.full(100, 2.0), np.zeros(50)]
    some = frame[:100], (y[0][:100], y[1][:100])
    tree = REGRESSION.fit(*some)
    first = split_test(tree, frame, y, sample_weight=weight, n_draws=99)
    second = split_test(tree, *some, n_draws=99)
    pd.testing.assert_frame_equal(first.table, second.table)
    third = split_test(tree, *some, n_draws=99, random_state=1)
    assert (third.table.sort_index()["p"] != second.table.sort_index()["p"]).any()


FAMILIES = ["weibull", "log_logistic", "log_normal", "spline_po", "logistic_hazard", "piecewise_exponential"]


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("name", nightly_but({"log_logistic", "log_normal", "spline_po"}, FAMILIES))
def test_scores_are_derivatives_of_the_likelihood(name: str, linear: bool) -> None:
    frame, y, entry = _simulated(40, seed=8, late=True)
    family: HazardFamily = make_family(name, ancillary="linear" if linear else "constant")
    late = Surv(*y, entry=entry)
    tree = SoftSurvivalTree(
        depth=0, leaf=family, trainer="joint", init="random", n_starts=1, penalties=Penalties(ridge=1e-2)
    ).fit(frame, late)
    module, x = tree.module_, tree._encode(frame)
    parameters = module.leaf_parameters()
    linear_part, shape = (
        parameters.linear_predictor(x)[None].detach(),
        parameters.shape_parameters(x)[None].detach(),
    )
    scale = float(module.log_time_scale)
    data = SurvivalData(frame, late)
    design, is_level = _design(x.numpy(), shape.shape[-1], linear)
    numbers = torch.cat([linear_part[0, 0, :, None], shape[0, 0].expand(len(x), -1)], dim=-1).numpy()
    leaf = LeafLikelihood(module.family.expand((1,)), scale, numbers, design, is_level, data)
    _, (first,), (second,) = leaf._derivatives(data.time[None], data.event[None], numbers[None])
    gradient = np.einsum("nq,nqd->d", first, design)
    assert is_level.sum() == 1 + len(module.family.shape_names)

    theta = parameters.flatten().detach().requires_grad_()

    def loss(theta: torch.Tensor) -> torch.Tensor:
        moved = parameters.unflatten(theta, x.shape[1], len(module.family.shape_names))
        y_rows, entered = (torch.as_tensor(np.log(np.maximum(v, 1e-300))) - scale for v in (y[0], entry))
        return module.family.loss(
            y_rows[None],
            torch.as_tensor(y[1].astype(float))[None],
            moved.linear_predictor(x),
            moved.shape_parameters(x),
            torch.where(torch.as_tensor(entry) > 0, entered, -torch.inf)[None],
        ).sum()

    (expected,) = torch.autograd.grad(loss(theta), theta)
    np.testing.assert_allclose(gradient, expected[0].numpy(), rtol=1e-6, atol=1e-8)
    direction = torch.as_tensor(np.random.default_rng(9).normal(size=theta.shape))
    ends = [torch.autograd.grad(loss(theta + h * direction), theta)[0] for h in (1e-5, -1e-5)]
    bend = np.einsum("nqd,nqr,nre,e->d", design, second, design, direction[0].numpy())
    np.testing.assert_allclose(bend, ((ends[0] - ends[1]) / 2e-5)[0].numpy(), rtol=1e-3, atol=1e-3)
    test: SplitTest = split_test(tree, frame, late, n_draws=19)
    assert test.table["p"].between(0.05, 1).all()


@pytest.mark.filterwarnings("ignore:.*(have little information|are steps):sstorch.exceptions.DataWarning")
@pytest.mark.parametrize(("n_events", "seed"), [(1, 8), (2, 3)])
def test_few_events_raise_where_the_likelihood_has_no_maximum(n_events: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"a": rng.normal(size=150), "b": rng.normal(size=150), "g": rng.choice(["u", "v"], 150)}
    )
    y = Surv(rng.exponential(size=150) + 0.01, np.arange(150) < n_events)
    tree = PrognosticTree(depth=1, leaf="weibull").fit(frame.assign(c=1.0), y)
    with pytest.raises(DataError, match=r"no maximum|have a maximum"):
        split_test(tree, frame.assign(c=1.0), y, n_draws=99)


@pytest.mark.filterwarnings("ignore:group 1 has no event:sstorch.exceptions.DataWarning")
def test_group_without_an_event_has_no_test_and_says_why() -> None:
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"a": rng.normal(size=240), "b": np.repeat([0.0, 1.0], 120)})
    y = Surv(rng.weibull(1.5, 240) + 0.01, (frame["b"] == 1) & (rng.random(240) < 0.7))
    columns = Columns(numeric="linear")
    tree = PrognosticTree(depth=1, leaf="weibull", columns=columns, min_leaf=0.2).fit(frame, y)
    assert tree.apply(frame).tolist() == [1] * 120 + [2] * 120
    found = split_test(tree, frame, y, n_draws=99)
    assert found.table.loc[1].isna().all(axis=None)
    assert found.table.loc[2, "p"].loc["a"] > 0
    assert found.overall.loc[1] == 1
    assert "(0 events)" in found.untested[1]
    assert "group 1, 120 rows: no test" in str(found)
    with pytest.raises(DataError, match="no maximum"):
        split_test(tree, frame, y, group=1, n_draws=99)


@pytest.mark.filterwarnings("ignore:the events are at too few distinct times:sstorch.exceptions.DataWarning")
def test_ties_that_leave_a_part_of_a_spline_without_slope_are_tested(gbsg2: SurvivalData) -> None:
    y = Surv(np.ceil(gbsg2.time / 1000), gbsg2.event)
    tree = PrognosticTree(leaf="spline_po").fit(gbsg2.frame, y)
    assert split_test(tree, gbsg2.frame, y, group=1, n_draws=19).table["p"].between(0.05, 1).all()


def test_arguments_that_do_not_exist_are_refused() -> None:
    frame, y, _ = _simulated(60, seed=10)
    tree = REGRESSION.fit(frame, y)
    for wrong in ({"parameters": "some"}, {"n_draws": 0}, {"group": 2}, {"random_state": -1}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            split_test(tree, frame, y, **wrong)
    with pytest.raises(ConfigError, match="must be a fitted soft survival tree, got OptimalSurvivalTree"):
        split_test(OptimalSurvivalTree(0).fit(frame, y), frame, y)
    split = SoftSurvivalTree(depth=1, trainer="joint", init="random", n_starts=1).fit(frame, y)
    rows = np.flatnonzero(split.apply(frame) == split.apply(frame)[0])
    with pytest.raises(DataError, match="none of the rows"):
        split_test(split, frame.iloc[rows], (y[0][rows], y[1][rows]), group=3 - int(split.apply(frame)[0]))
