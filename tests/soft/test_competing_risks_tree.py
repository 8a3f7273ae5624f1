"""One set of gates, the hazard of every cause in each leaf: curves, groups, what is refused, what is kept."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from sstorch import (
    OptimalSurvivalTree,
    PrognosticTree,
    PrognosticTreeCV,
    Surv,
    SurvivalData,
    SurvivalRegression,
    metrics,
)
from sstorch.bench.flat import soft_tree
from sstorch.conformal import ConformalLowerBound
from sstorch.exceptions import ConfigError, DataError, DataWarning, FormatError
from sstorch.fitted.incidence import cumulative_incidence, log_time_panels
from sstorch.nn import FAMILIES, Spline
from sstorch.reading import gate_table
from sstorch.validation import group_table
from tests.conftest import nightly_but

CAUSES = {1: "relapse", 2: "death"}
FAMILIES_THAT_FALL = [name for name in sorted(FAMILIES) if not FAMILIES[name]().can_rise]
TIMES = np.array([0.0, 1e-3, 30.0, 400.0, 900.0, 2500.0, 6000.0])


def simulated(n: int, seed: int = 0) -> SurvivalData:
    """Relapse by size and grade, death by age: what divides people by one says nothing of the other."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 3)), columns=["age", "size", "marker"])
    frame["grade"] = pd.Categorical(rng.choice(["I", "II", "III"], n))
    grade = frame["grade"].cat.codes
    relapse = np.exp(-0.7 * frame["size"] - 0.4 * grade) * rng.weibull(1.3, n) * 1200
    death = np.exp(-0.7 * frame["age"]) * rng.weibull(1.8, n) * 1500
    censored = rng.uniform(100, 3000, n)
    time = np.ceil(np.minimum(np.minimum(relapse, death), censored))
    cause = np.select([relapse <= np.minimum(death, censored), death <= censored], [1, 2], 0)
    return SurvivalData(frame, Surv(time, cause, causes=CAUSES))


@pytest.fixture(scope="module")
def data() -> SurvivalData:
    return simulated(400)


@pytest.fixture(scope="module")
def tree(data: SurvivalData) -> PrognosticTree:
    return PrognosticTree().fit(data.frame, data.y)


@pytest.mark.parametrize("leaf", nightly_but(("weibull",), FAMILIES_THAT_FALL))
def test_depth_0_is_a_regression_of_every_cause(leaf: str, data: SurvivalData) -> None:
    model = SurvivalRegression(leaf=leaf).fit_data(data)
    for cause in model.causes_:
        alone = SurvivalRegression(leaf=leaf).fit_data(data.of_cause(cause))
        np.testing.assert_allclose(
            model.trees_[cause].predict_cumulative_hazard_function(data.frame, TIMES),
            alone.predict_cumulative_hazard_function(data.frame, TIMES),
            rtol=1e-8,
        )


@pytest.mark.parametrize("leaf", nightly_but(("log_logistic", "piecewise_exponential"), FAMILIES_THAT_FALL))
def test_incidences_are_the_integrals(leaf: str, data: SurvivalData) -> None:
    """Against the same integral on panels of a fifth of their width, with twice the nodes."""
    model = PrognosticTree(depth=1, leaf=leaf).fit_data(data)
    rows = data.frame.iloc[:20]
    found = model.predict_cumulative_incidence(rows, TIMES)
    survival = model.predict_survival_function(rows, TIMES)
    np.testing.assert_allclose(found.sum(axis=1) + survival, 1, atol=1e-12)
    assert (found[:, :, 0] == 0).all()
    assert (np.diff(found, axis=2) >= 0).all()
    fine = np.unique(np.concatenate([model._panels + k * 0.05 for k in range(5)]))
    parts = [each.encode(rows) for each in model._fitted]
    np.testing.assert_allclose(found, _dense(model, parts, fine), atol=1e-8)


def _dense(model: PrognosticTree, rows: list[torch.Tensor], edges: np.ndarray) -> np.ndarray:
    """Incidences by twenty nodes a panel, without the shares of what S loses."""
    asked = np.log(TIMES[1:])
    edges = np.unique(np.concatenate([edges, asked, np.arange(edges[-1], asked[-1], 0.05)]))
    points, weights = np.polynomial.legendre.leggauss(20)
    half = np.diff(edges)[:, None] / 2
    at = (edges[:-1, None] + half * (1 + points)).ravel()
    trees = list(zip(model._fitted, rows, strict=True))
    hazard = np.stack([tree.curves(x, np.exp(at), "log_hazard") for tree, x in trees], 1)
    total = sum(tree.curves(x, np.exp(at), "cumulative_hazard") for tree, x in trees)
    mass = np.exp(hazard + at - total[:, None]).reshape(len(rows[0]), 2, -1, 20) @ weights * half[:, 0]
    sums = np.concatenate([np.zeros((len(rows[0]), 2, 1)), np.cumsum(mass, axis=2)], axis=2)
    return sums[..., np.concatenate([[0], np.searchsorted(edges, asked)])]


def test_curves_of_random_leaves_rise_and_fall() -> None:
    """Ten thousand persons in leaves whose parameters are drawn at random, far beyond what is ever fitted."""
    data = simulated(100)
    model = PrognosticTree(leaf={"relapse": "weibull", "death": "gompertz"}).fit_data(data)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(500, model._fitted[0].module.n_gate_features, generator=generator, dtype=torch.float64)
    panels = log_time_panels(model.event_times_, np.zeros(0))
    for _ in range(20):
        for fitted in model._fitted:
            with torch.no_grad():
                for parameter in fitted.module.parameters():
                    parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        rows = [
            torch.cat([x, torch.zeros(500, max(0, f.module.n_features - x.shape[1]), dtype=x.dtype)], 1)
            for f in model._fitted
        ]
        found = cumulative_incidence(model._fitted, rows, TIMES, panels)
        hazard = sum(
            f.curves(r, TIMES, "cumulative_hazard") for f, r in zip(model._fitted, rows, strict=True)
        )
        assert np.isfinite(found).all()
        assert (np.diff(found, axis=2) >= 0).all()
        np.testing.assert_allclose(found.sum(axis=1) + np.exp(-hazard), 1, atol=1e-9)


def test_gates_divide_by_every_cause(tree: PrognosticTree, data: SurvivalData) -> None:
    relapse, death = tree.trees_.values()
    np.testing.assert_array_equal(relapse.apply(data.frame), death.apply(data.frame))
    columns = {name for rule in gate_table(relapse)["features"] for name in rule}
    assert "age" in columns
    assert "size" in columns
    table = group_table(tree, data.frame, data.y, [800.0])
    for cause in tree.causes_:
        seen, predicted = table[f"F(800) {cause}", "estimate"], table[f"F(800) {cause}", "model"]
        assert seen.max() - seen.min() > 0.2
        assert (seen - predicted).abs().max() < 0.08
    assert table["rows", ""].sum() == len(data)
    assert table["rows", ""].min() >= 0.1 * len(data)


def test_the_table_of_groups_is_that_of_aalen_and_johansen(tree: PrognosticTree, data: SurvivalData) -> None:
    table = group_table(tree, data.frame, data.y, [300.0, 1e5])
    inside = tree.apply(data.frame) == table.index[0]
    expected = metrics.aalen_johansen((data.time[inside], data.cause[inside]), [300.0])
    assert table["F(300) death", "estimate"].iloc[0] == expected[1, 0]
    assert table["F(100000) relapse", "estimate"].isna().all()


def test_predictions_and_scores(tree: PrognosticTree, data: SurvivalData) -> None:
    y = data.y
    np.testing.assert_array_equal(
        tree.predict(data.frame), tree.predict(data.frame, "relapse", tree.horizon_)
    )
    some = data.frame.iloc[:3]
    frame = tree.predict_cumulative_incidence(some, [100.0, 200.0], as_frame=True)
    np.testing.assert_allclose(frame["death", 200.0], tree.predict(some, "death", 200.0), rtol=1e-9)
    by_cause = [
        metrics.concordance_harrell_risk((data.time, data.cause == k), tree.predict(data.frame, k))
        for k in (1, 2)
    ]
    assert tree.score(data.frame, y) == pytest.approx(np.mean(by_cause), abs=0.02)
    assert min(by_cause) > 0.65
    single = [
        model.log_likelihood(data.frame, (data.time, data.cause == k))
        for k, model in enumerate(tree.trees_.values(), 1)
    ]
    assert tree.log_likelihood(data.frame, y) == pytest.approx(sum(single), abs=1e-12)
    total = sum(each.predict_cumulative_hazard_function(data.frame, TIMES) for each in tree.trees_.values())
    np.testing.assert_allclose(tree.predict_survival_function(data.frame, TIMES), np.exp(-total), atol=1e-14)
    np.testing.assert_allclose(tree.falling_curves(data.frame, TIMES), np.exp(-total), atol=1e-14)
    assert 0 < tree.explain(data.frame.iloc[[0]], "death").leaf_probability.max() <= 1


def test_it_says_what_it_found(tree: PrognosticTree) -> None:
    text = tree.summary()
    for part in ("relapse", "Hazard of death within every group", "left if", "model F("):
        assert part in text


def test_it_comes_back_from_its_folder(tree: PrognosticTree, data: SurvivalData, tmp_path: Path) -> None:
    tree.save(tmp_path / "tree")
    again = PrognosticTree.load(tmp_path / "tree")
    np.testing.assert_array_equal(
        again.predict_cumulative_incidence(data.frame), tree.predict_cumulative_incidence(data.frame)
    )
    assert again.summary() == tree.summary()
    assert again.score(data.frame, data.y) == tree.score(data.frame, data.y)
    SurvivalRegression().fit_data(data.of_cause(1)).save(tmp_path / "tree" / "cause_2")
    with pytest.raises(FormatError, match="another"):
        PrognosticTree.load(tmp_path / "tree")


def test_weights_count_rows(data: SurvivalData) -> None:
    weight = np.random.default_rng(0).integers(0, 3, len(data)).astype(float)
    rows = np.repeat(np.arange(len(data)), weight.astype(int))
    options = {"depth": 1, "leaf": "log_logistic", "numeric": "linear"}
    weighted = soft_tree(**options).fit(data.frame, data.y, sample_weight=weight)
    some = data.subset(rows)
    repeated = soft_tree(**options).fit(some.frame, some.y)
    np.testing.assert_allclose(
        weighted.predict_cumulative_incidence(data.frame, TIMES),
        repeated.predict_cumulative_incidence(data.frame, TIMES),
        atol=1e-4,
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"leaf": {"relapse": "weibull"}}, "leaf names relapse; the causes are relapse, death"),
        ({"leaf": Spline(monotone=False)}, "cannot rise"),
        ({"depth": 9}, "depth"),
        ({"min_leaf": 0.7}, "min_leaf"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], said: str, data: SurvivalData) -> None:
    model = soft_tree(**options)
    with pytest.raises((ConfigError, DataError), match=said):
        model.fit(data.frame, data.y)


def test_rare_causes_and_unknown_ones(tree: PrognosticTree, data: SurvivalData) -> None:
    with pytest.raises(ConfigError, match=r"no cause 3; the causes are 1 \(relapse\), 2 \(death\)"):
        tree.predict(data.frame, 3)
    cause = np.where((data.cause == 2) & (np.cumsum(data.cause == 2) > 6), 0, data.cause)
    with pytest.warns(DataWarning, match=r"cause death: 6 events in 400 rows"):
        PrognosticTree(depth=1).fit(data.frame, Surv(data.time, cause, causes=CAUSES))


def test_it_is_cloned_as_any_estimator(tree: PrognosticTree, data: SurvivalData) -> None:
    again = clone(tree).fit(data.frame, data.y)
    np.testing.assert_array_equal(again.predict(data.frame), tree.predict(data.frame))


def test_leaves_are_free_where_events_are_many(data: SurvivalData) -> None:
    tree = SurvivalRegression().fit_data(data)
    counts = {cause: data.of_cause(cause).n_events for cause in tree.causes_}
    assert counts["death"] < 150 <= counts["relapse"]
    names = [each.module_.family.name for each in tree.trees_.values()]
    assert names == ["spline_ph", "log_logistic"]


def test_an_explanation_tells_what_will_happen(tree: PrognosticTree, data: SurvivalData) -> None:
    why = tree.explain(data.frame.iloc[[0]], "death")
    assert why.cause == "death"
    found = tree.predict_cumulative_incidence(data.frame.iloc[[0]], why.incidence.columns.to_numpy())[0]
    np.testing.assert_array_equal(why.incidence.to_numpy(), found)
    assert f"of relapse F({why.incidence.columns[0]:g}) = {found[0, 0]:.3f}" in str(why)
    assert "median" not in str(why)


def test_what_knows_one_event_alone_refuses_causes(data: SurvivalData) -> None:
    for model in (PrognosticTree(), PrognosticTreeCV(), OptimalSurvivalTree()):
        with pytest.raises(DataError, match=r"y has competing causes \(relapse, death\): use CompetingRisks"):
            model.fit(data.frame, data.y)
    with pytest.raises(DataError, match="conformal bounds need right-censored times, and y is competing"):
        ConformalLowerBound(PrognosticTree()).fit(data.frame, data.y)
    with pytest.raises(DataError, match="y has one event; a model of competing risks needs Surv"):
        PrognosticTree().fit(data.frame, (data.time, data.event))
