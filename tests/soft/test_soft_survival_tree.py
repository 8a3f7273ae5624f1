from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from sstorch import (
    GatePenalties,
    Penalties,
    SoftSurvivalTree,
    SurvivalData,
    load_dataset,
)
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.nn import LogLogistic
from sstorch.optim import Nodec
from tests.conftest import nightly
from tests.flat import soft_tree

FAST = Nodec(macro_iterations=2)


@pytest.fixture(scope="module")
def fitted(gbsg2: SurvivalData) -> SoftSurvivalTree:
    tree = SoftSurvivalTree(
        depth=2, trainer=FAST, init="random", n_starts=3, penalties=GatePenalties(gate_ridge=1e-3)
    )
    return tree.fit(gbsg2.frame, (gbsg2.time, gbsg2.event))


def test_predictions_have_their_shapes_and_meaning(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    X, n = gbsg2.frame, len(gbsg2)
    times = np.array([0.0, 100.0, 1500.0, 1e5])
    survival = fitted.predict_survival_function(X, times)
    hazard = fitted.predict_cumulative_hazard_function(X, times)
    assert isinstance(survival, np.ndarray)
    assert survival.shape == (n, 4)
    assert (survival[:, 0] == 1).all()
    assert (np.diff(survival, axis=1) <= 0).all()
    np.testing.assert_allclose(np.exp(-np.asarray(hazard)), survival, rtol=1e-12)
    step = 1e-4
    near = np.asarray(fitted.predict_cumulative_hazard_function(X, [1500.0 - step, 1500.0 + step]))
    rate = np.asarray(fitted.predict_hazard_function(X, [1500.0]))[:, 0]
    np.testing.assert_allclose(rate, (near[:, 1] - near[:, 0]) / (2 * step), rtol=1e-5)

    event_times = np.unique(gbsg2.time[gbsg2.event])
    np.testing.assert_array_equal(fitted.event_times_, event_times)
    total = np.asarray(fitted.predict_cumulative_hazard_function(X, "events")).sum(axis=1)
    np.testing.assert_allclose(fitted.predict(X), total, rtol=1e-12)
    proba = fitted.predict_leaf_proba(X)
    assert proba.shape == (n, 4)
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-12)
    group = fitted.apply(X)
    assert set(group) <= {1, 2, 3, 4}
    rows = np.asarray(fitted.node_table_["rows"][[4, 5, 6, 7]])[fitted.tree_.group_numbers.argsort()]
    assert (rows == np.bincount(group, minlength=5)[1:]).all()
    assert 0.6 < fitted.score(X, (gbsg2.time, gbsg2.event)) < 0.85


def test_log_likelihood_is_the_training_objective_in_original_units(gbsg2: SurvivalData) -> None:
    tree = SoftSurvivalTree(depth=0, trainer=FAST, init="random", n_starts=1, penalties=Penalties(ridge=0.0))
    tree.fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
    shift = gbsg2.event.mean() * float(tree.module_.log_time_scale)
    value = tree.log_likelihood(gbsg2.frame, (gbsg2.time, gbsg2.event))
    assert value == pytest.approx(-tree.objective_ - shift, rel=1e-12)


def test_new_categories_missing_values_and_column_order(
    fitted: SoftSurvivalTree, gbsg2: SurvivalData
) -> None:
    X = gbsg2.frame[:4].copy()
    assert np.array_equal(fitted.predict(X[X.columns[::-1]]), fitted.predict(X))
    X["age"] = np.nan
    assert np.isfinite(fitted.predict(X)).all()
    odd = gbsg2.frame[:2].astype({"tgrade": object})
    odd["tgrade"] = "IV"
    with pytest.warns(DataWarning, match="tgrade.*IV"):
        assert np.isfinite(fitted.predict(odd)).all()
    with pytest.raises(DataError, match="age"):
        fitted.predict(X.drop(columns="age"))


def test_summary_tells_rules_in_original_units(fitted: SoftSurvivalTree, gbsg2: SurvivalData) -> None:
    text = fitted.summary(details=True)
    assert "depth 2, log_logistic leaves, 686 rows, 299 events" in text
    # All of these rows are in one leaf: gates that divide nothing are not printed.
    assert set(fitted.apply(gbsg2.frame)) == {1}
    for part in ("\ngroup 1: 686 rows, 299 events, ", "No gate divides", "log_a", "S("):
        assert part in text
    assert "left if" not in text
    # The rule as printed, all of its terms, decides as the gate does.
    p, gate = fitted.preprocessor_, fitted.module_.gate(1)
    z = p.transform(gbsg2.frame)
    raw = z / np.where(p.scale_ == 0, 1, p.scale_) + p.offset_
    slope = gate.weight.detach().numpy() * p.scale_
    score = raw @ slope + float(gate.bias.detach()) - slope @ p.offset_
    np.testing.assert_array_equal(score >= 0, fitted.tree_.leaf(torch.as_tensor(z)) < 2)


@pytest.mark.filterwarnings("ignore:column 'holes' is missing in 55%")
def test_constant_column_heavy_ties_and_missing_values() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=80), "constant": 3.0, "holes": rng.normal(size=80)})
    frame.loc[rng.uniform(size=80) < 0.6, "holes"] = np.nan
    time, event = rng.integers(1, 4, 80).astype(float), rng.uniform(size=80) < 0.3
    tree = SoftSurvivalTree(depth=2, trainer=FAST, init="kmeans", n_starts=3).fit(frame, (time, event))
    curves = np.asarray(tree.predict_survival_function(frame, np.linspace(0, 10, 7)))
    assert np.isfinite(curves).all()
    assert np.isfinite(tree.objective_)
    assert load_dataset("gbsg2").n_events == 299


# ---------------------------------------------------------------------- on disk


def test_a_family_that_no_file_could_name_is_not_saved(small_data: SurvivalData, tmp_path: Path) -> None:
    class Own(LogLogistic):
        name = "own"

    tree = SoftSurvivalTree(depth=0, leaf=Own(), trainer=FAST, init="random", n_starts=1)
    tree.fit(small_data.frame, (small_data.time, small_data.event))
    with pytest.raises(ConfigError, match="not registered and could not be loaded again"):
        tree.save(tmp_path / "own")
    assert not (tmp_path / "own").exists()


# ---------------------------------------------------------------------- inputs that nobody planned for


def _simulated(n: int = 80) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(n, 3))
    return x, rng.exponential(np.exp(x[:, 0])) + 0.01, rng.uniform(size=n) < 0.6


def _quick(**values: object) -> SoftSurvivalTree:
    settings = {"depth": 1, "n_starts": 2, "init": "random", "trainer": FAST, **values}
    return soft_tree(**settings)  # type: ignore[arg-type]


@pytest.mark.filterwarnings(r"ignore:\d+ (events? in|columns after):sstorch.exceptions.DataWarning")
@pytest.mark.parametrize("n", [nightly(10), 80])
def test_weibull_leaves_of_small_clusters_do_not_run_away(n: int) -> None:
    """A leaf fitted to a cluster of few rows can be absurd elsewhere; the trainer must get out of it."""
    x, t, e = _simulated(n)
    tree = _quick(leaf="weibull", init="kmeans", depth=3).fit(x, (t, e))
    plain = _quick(leaf="weibull", depth=0).fit(x, (t, e))
    assert tree.objective_ < plain.objective_ + 0.5


def test_rows_of_weight_zero_change_nothing() -> None:
    x, t, e = _simulated()
    more = np.r_[x, np.full((1, 3), 1e6)], (np.r_[t, 1e9], np.r_[e, True])
    one = _quick().fit(x, (t, e))
    two = _quick().fit(*more, sample_weight=np.r_[np.ones(80), 0.0])
    np.testing.assert_array_equal(one.predict(x), two.predict(x))
    assert two.summary(details=True) == one.summary(details=True)


def test_huge_weights_do_not_overflow() -> None:
    x, t, e = _simulated()
    one, two = _quick().fit(x, (t, e)), _quick().fit(x, (t, e), sample_weight=np.full(80, 1e308))
    assert two.objective_ == pytest.approx(one.objective_, rel=1e-9)


def test_a_time_of_zero_is_scored_as_in_training() -> None:
    x, t, e = _simulated()
    with pytest.warns(DataWarning, match="1 event at time zero"):
        tree = _quick().fit(x, (np.r_[0.0, t[1:]], np.r_[True, e[1:]]))
    values = []
    for other in (1.0, 1000.0):
        with pytest.warns(DataWarning, match="zero moved to"):
            both = tree.log_likelihood(x[:2], ([0.0, other], [True, True]))
        values.append(2 * both - tree.log_likelihood(x[1:2], ([other], [True])))
    assert values[0] == pytest.approx(values[1], rel=1e-12)


@pytest.mark.filterwarnings("ignore:the curves of leaf")
@pytest.mark.filterwarnings(r"ignore:\d+ (events? in|columns after):sstorch.exceptions.DataWarning")
@pytest.mark.parametrize(
    ("n", "init"), [(2, "kmeans"), nightly(3, "random"), nightly(5, "kmeans"), nightly(5, "random")]
)
def test_very_few_rows(n: int, init: str) -> None:
    x, t, _ = _simulated(n)
    tree = _quick(depth=2, init=init).fit(x, (t, np.ones(n)))
    assert np.isfinite(tree.predict_survival_function(x)).all()
    assert np.isfinite(tree.objective_)


def test_a_saved_tree_is_the_fitted_one_whatever_was_set_since(tmp_path: Path) -> None:
    x, t, e = _simulated()
    tree = _quick().fit(x, (t, e))
    tree.set_params(depth=3, dtype="float32").save(tmp_path / "tree")
    np.testing.assert_array_equal(SoftSurvivalTree.load(tmp_path / "tree").predict(x), tree.predict(x))


@pytest.mark.filterwarnings(r"ignore:\d+ (events? in|columns after):sstorch.exceptions.DataWarning")
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"depth": 7}, "depth must be an integer from 0 to 6"),
        ({"leaf": "gauss"}, "unknown leaf 'gauss'"),
        ({"n_starts": 0, "trainer": "nodec"}, "n_starts must be at least 1"),
        ({"trainer": "sgd"}, "trainer must be one of nodec"),
        ({"init": "zeros"}, "init must be one of random, kmeans"),
        ({"ridge": -1.0}, "ridge must be a finite number >= 0"),
        ({"prediction": "mean"}, "prediction must be one of hbp, mixture"),
        ({"dtype": "float16"}, "dtype must be one of float64, float32"),
        ({"device": "gpu"}, "device must be cpu, cuda or cuda:<number>, got 'gpu'"),
        ({"missing_numbers": "zero"}, "missing_numbers must be one of mean, median, got 'zero'"),
        ({"n_starts": 1.5}, "n_starts must be at least 1, an integer"),
        ({"n_starts": True}, "n_starts must be at least 1, an integer"),
        ({"ridge": "1"}, "ridge must be 'estimated' or a finite number"),
        ({"leaf": [1]}, "unknown leaf"),
        (
            {"trainer": 5},
            "trainer must be one of nodec, joint, nodec.joint, leaves, or settings such as Nodec",
        ),
        ({"random_state": -1}, "random_state must be"),
        ({"random_state": "a"}, "random_state must be"),
        ({"device": "cpu:abc"}, "device must be"),
    ],
)
def test_wrong_kinds_of_parameters(values: dict[str, object], message: str) -> None:
    x, t, e = _simulated(10)
    with pytest.raises(ConfigError, match=message):
        _quick(**values).fit(x, (t, e))
