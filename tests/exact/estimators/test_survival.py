import numpy as np
import pandas as pd
import pytest
from lifelines import KaplanMeierFitter, NelsonAalenFitter

from sstorch import OptimalSurvivalTree, Search, Surv, SurvivalData, metrics
from sstorch.exact import Binarizer, IntegratedBrier, LogLikelihood, solve
from sstorch.exceptions import ConfigError
from sstorch.reading import export_text


@pytest.fixture(scope="module")
def fitted(gbsg2: SurvivalData) -> OptimalSurvivalTree:
    return OptimalSurvivalTree(max_depth=2).fit(gbsg2.frame, (gbsg2.time, gbsg2.event))


def _nelson_aalen(time: np.ndarray, event: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Σ d / n with a loop over event times."""
    steps = [(t, (event & (time == t)).sum() / (time >= t).sum()) for t in np.unique(time[event])]
    return np.array([sum(jump for t, jump in steps if t <= moment) for moment in at])


# ---------------------------------------------------------------------- what is found


@pytest.mark.parametrize("preset", ["surtree", "osst"])
def test_tree_and_loss_are_those_of_the_engine(gbsg2: SurvivalData, preset: str) -> None:
    y = (gbsg2.time, gbsg2.event)
    tree = OptimalSurvivalTree(max_depth=2, max_nodes=2, min_leaf=20, binarize=preset).fit(gbsg2.frame, y)
    binarizer = Binarizer(preset).fit(gbsg2.frame)
    features = binarizer.transform(gbsg2.frame)
    task = LogLikelihood(*y)
    found = solve(features, task, 2, 2, min_leaf=20)
    assert tree.loss_ == found.loss
    assert tree.certified_
    assert [rule.name for rule in tree.rules_] == list(binarizer.get_feature_names_out())
    leaf = tree.apply(gbsg2.frame) - 1
    np.testing.assert_array_equal(leaf, tree.tree_.order[found.tree().apply(features)])
    assert task.loss(leaf) == pytest.approx(tree.loss_, rel=1e-10)
    assert np.bincount(leaf).min() >= 20
    assert tree.leaf_table_["rows"].tolist() == np.bincount(leaf).tolist()
    assert tree.leaf_table_["events"].tolist() == np.bincount(leaf, weights=gbsg2.event).tolist()


def test_leaf_penalty_and_sizes_come_from_the_search(gbsg2: SurvivalData) -> None:
    y = (gbsg2.time, gbsg2.event)
    whole = OptimalSurvivalTree(max_depth=2).fit(gbsg2.frame, y)
    losses = whole.optima_.groupby("nodes")["loss"].min()
    rate = ((losses[0] - losses) / losses.index)[1:]  # gain of each node
    small = OptimalSurvivalTree(max_depth=2, leaf_penalty=float(rate.max()) * 0.999).fit(gbsg2.frame, y)
    assert small.tree_.n_nodes == rate.idxmax()
    assert small.loss_ == pytest.approx(losses[rate.idxmax()], rel=1e-12)
    assert small.objective_ == pytest.approx(small.loss_ + small.leaf_penalty * small.tree_.n_leaves)
    assert whole.optima_["loss"].is_monotonic_decreasing
    assert len(whole.optima_) > 3


# ---------------------------------------------------------------------- curves


@pytest.mark.parametrize("kind", ["plain", "weighted", "truncated", "weighted and truncated"])
def test_curves_of_leaves_equal_lifelines(gbsg2: SurvivalData, kind: str) -> None:
    rng, n = np.random.default_rng(0), len(gbsg2)
    weight = rng.integers(1, 4, n) if "weighted" in kind else np.ones(n)
    entry = gbsg2.time * rng.uniform(0, 0.9, n) * (np.arange(n) > 80) if "truncated" in kind else np.zeros(n)
    y = Surv(gbsg2.time, gbsg2.event, entry=entry) if "truncated" in kind else gbsg2.y
    tree = OptimalSurvivalTree(max_depth=2, min_leaf=40).fit(gbsg2.frame, y, sample_weight=weight / 7)
    grid = np.array([0.0, 71.9, 72.0, 500.0, 1000.5, 2659.0, 9999.0])
    survival = tree.predict_survival_function(gbsg2.frame, grid)
    hazard = tree.predict_cumulative_hazard_function(gbsg2.frame, grid)
    median, leaf = tree.predict_quantile(gbsg2.frame), tree.apply(gbsg2.frame)
    assert set(leaf) == {1, 2, 3, 4}
    for number in range(1, 5):
        rows = leaf == number
        given = {"durations": gbsg2.time[rows], "event_observed": gbsg2.event[rows], "weights": weight[rows]}
        given |= {"entry": entry[rows]} if "truncated" in kind else {}
        peer = KaplanMeierFitter().fit(**given)
        np.testing.assert_allclose(survival[rows], np.tile(peer.predict(grid), (rows.sum(), 1)), atol=1e-10)
        assert (median[rows] == peer.median_survival_time_).all()
        other = NelsonAalenFitter(nelson_aalen_smoothing=False).fit(**given).predict(grid)
        np.testing.assert_allclose(hazard[rows], np.tile(other, (rows.sum(), 1)), rtol=1e-10)


def test_hazard_ratios_of_leaves(fitted: OptimalSurvivalTree, gbsg2: SurvivalData) -> None:
    tree, leaf = fitted, fitted.apply(gbsg2.frame) - 1
    at_rows = _nelson_aalen(gbsg2.time, gbsg2.event, gbsg2.time)
    at_rows = np.where(at_rows > 0, at_rows, 1 / 687)
    ratio = np.array([gbsg2.event[leaf == k].sum() / at_rows[leaf == k].sum() for k in range(4)])
    np.testing.assert_allclose(tree.leaf_table_["hazard_ratio"], ratio, rtol=1e-12)
    # Half the deviance from its definition is the loss.
    theta, d = ratio[leaf], gbsg2.event
    deviance = at_rows * theta - d * (np.log(at_rows) + np.log(theta) + 1)
    assert deviance.sum() == pytest.approx(tree.loss_, rel=1e-10)


def test_brier_score_of_the_predictions_is_the_loss(small_data: SurvivalData) -> None:
    y = (small_data.time, small_data.event)
    tree = OptimalSurvivalTree(max_depth=2, objective="integrated_brier", min_leaf=15)
    tree.fit(small_data.frame, y)
    grid = np.unique(small_data.time)
    curves = np.asarray(tree.predict_survival_function(small_data.frame, grid))
    score = metrics.integrated_brier_score(y, curves, grid, train=y, convention="osst")
    assert IntegratedBrier(*y).loss(tree.apply(small_data.frame)) == pytest.approx(tree.loss_, rel=1e-9)
    assert score == pytest.approx(tree.loss_, rel=1e-9)


def test_buckets_coarsen_the_search_only(gbsg2: SurvivalData) -> None:
    y = (gbsg2.time, gbsg2.event)
    tree = OptimalSurvivalTree(max_depth=1, objective="integrated_brier", search=Search(n_buckets=20)).fit(
        gbsg2.frame, y
    )
    found = solve(
        Binarizer().fit(gbsg2.frame).transform(gbsg2.frame), IntegratedBrier(*y, n_buckets=20), max_depth=1
    )
    assert tree.loss_ == found.loss
    np.testing.assert_array_equal(tree.event_times_, np.unique(gbsg2.time[gbsg2.event]))
    np.testing.assert_array_equal(tree.curves_.times, tree.event_times_)


def test_risk_quantiles_and_restricted_means(fitted: OptimalSurvivalTree, gbsg2: SurvivalData) -> None:
    X = gbsg2.frame[:40]
    hazard = np.asarray(fitted.predict_cumulative_hazard_function(X, "events"))
    np.testing.assert_allclose(fitted.predict(X), hazard.sum(axis=1), rtol=1e-12)
    fine = np.arange(0, 1500, 0.5)
    area = np.asarray(fitted.predict_survival_function(X, fine)).sum(axis=1) * 0.5
    np.testing.assert_allclose(fitted.predict_rmst(X, 1500.0), area, rtol=1e-12)  # times are whole days
    quarter = fitted.predict_quantile(X, 0.25)
    for value, curve in zip(quarter, np.asarray(fitted.predict_survival_function(X, fine)), strict=True):
        first = fine[curve <= 0.75][0] if (curve <= 0.75).any() else np.inf
        assert value == first or (value > fine[-1] and np.isinf(first))
    assert np.isinf(fitted.predict_rmst(X, np.inf)).any()
    for q in (0.0, 1.0):
        with pytest.raises(ConfigError, match="q must be a number in"):
            fitted.predict_quantile(X, q)
    with pytest.raises(ConfigError, match="extrapolate must be False"):
        fitted.predict_quantile(X, extrapolate=True)
    with pytest.raises(ConfigError, match="tau must be one positive number"):
        fitted.predict_rmst(X, 0.0)


@pytest.mark.filterwarnings(r"ignore:\d+ (events? in|columns after):sstorch.exceptions.DataWarning")
def test_a_mean_exists_where_the_curve_reaches_zero() -> None:
    x, time = np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([1.0, 3.0, 10.0, 20.0])
    tree = OptimalSurvivalTree(max_depth=1, binarize="all").fit(x, (time, np.ones(4)))
    np.testing.assert_allclose(tree.predict_rmst(x, np.inf), [2, 2, 15, 15])
    np.testing.assert_allclose(tree.predict_rmst(x, 2.0), [1.5, 1.5, 2, 2])
    np.testing.assert_array_equal(tree.predict_quantile(x), [1, 1, 10, 10])


def test_score_is_the_concordance_of_the_curves(fitted: OptimalSurvivalTree, gbsg2: SurvivalData) -> None:
    y = (gbsg2.time, gbsg2.event)
    curves = fitted.predict_survival_function(gbsg2.frame, fitted.event_times_)
    assert fitted.score(gbsg2.frame, y) == metrics.concordance_harrell(y, curves, fitted.event_times_)
    assert 0.6 < fitted.score(gbsg2.frame, y) < 0.75
    frame = fitted.predict_survival_function(gbsg2.frame[:2].set_axis(["a", "b"]), [5.0], as_frame=True)
    assert isinstance(frame, pd.DataFrame)
    assert (list(frame.index), list(frame.columns)) == (["a", "b"], [5.0])
    table = metrics.evaluate(fitted, train=(gbsg2.frame, y), test=(gbsg2.frame, y))
    assert np.isfinite(table.loc["ibs_graf", "value"])


# ---------------------------------------------------------------------- text


def test_text_is_in_original_units(fitted: OptimalSurvivalTree, gbsg2: SurvivalData) -> None:
    text = export_text(fitted)
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0] == "if pnodes > 3:"
    assert sum(line.startswith("group") for line in lines) == 4
    # The rules as printed lead to the rows that the leaves say they have.
    rows: dict[int, pd.DataFrame] = {0: gbsg2.frame}
    for line in text.splitlines():
        level = (len(line) - len(line.lstrip())) // 2
        words = line.split()
        if words[0] == "if":
            column, threshold = words[1], float(words[3].rstrip(":"))
            held = rows[level][column] > threshold
            rows[level + 1], otherwise = rows[level][held], rows[level][~held]
            rows[-level - 1] = otherwise
        elif words[0] == "else:":
            rows[level + 1] = rows[-level - 1]
        else:
            assert f": {len(rows[level])} rows, " in line
    summary = fitted.summary()
    for part in (
        "depth 2, 4 leaves, 686 rows, 299 events",
        "optimal for depth 2 over 53 questions",
        text,
        "\n\nCaution: The rules were chosen on the training rows",
    ):
        assert part in summary


def test_text_of_a_single_leaf_and_of_own_binary_columns(small_data: SurvivalData) -> None:
    y = (small_data.time, small_data.event)
    tree = OptimalSurvivalTree(max_depth=0).fit(small_data.frame, y)
    assert export_text(tree).startswith("group 1: 120 rows")
    assert "Caution" not in tree.summary()
    assert (tree.apply(small_data.frame) == 1).all()
    frame = pd.DataFrame({"treated": small_data.frame["x0"] > 0.5, "old": small_data.frame["x1"] > 0.5})
    tree = OptimalSurvivalTree(max_depth=1, binarize="all").fit(frame, y)
    assert export_text(tree).startswith("if treated is ")
    longer = tree.curves_.restricted_mean(None, tree.event_times_[-1])
    assert longer[0] > longer[1]
    treated = frame["treated"].to_numpy()
    np.testing.assert_array_equal(
        tree.apply(frame), np.where(treated, *tree.apply(frame)[[treated.argmax(), treated.argmin()]])
    )
