"""Soft survival trees: predictions and their meaning, and rows at the edge of what can be fitted."""

from pathlib import Path

import numpy as np
import pytest

from sstorch import GatePenalties, SoftSurvivalTree, SurvivalData
from sstorch.exceptions import ConfigError, DataWarning
from sstorch.nn import LogLogistic
from sstorch.optim import Nodec
from tests.conftest import nightly
from tests.flat import soft_tree

FAST = Nodec(macro_iterations=2)
FEW = pytest.mark.filterwarnings(r"ignore:\d+ (events? in|columns after):sstorch.exceptions.DataWarning")


def test_predictions_have_their_shapes_and_meaning(gbsg2: SurvivalData) -> None:
    X, n = gbsg2.frame, len(gbsg2)
    penalties = GatePenalties(gate_ridge=1e-3)
    tree = SoftSurvivalTree(depth=2, trainer=FAST, init="random", n_starts=3, penalties=penalties)
    tree.fit(X, (gbsg2.time, gbsg2.event))
    survival = tree.predict_survival_function(X, np.array([0.0, 100.0, 1500.0, 1e5]))
    hazard = tree.predict_cumulative_hazard_function(X, np.array([0.0, 100.0, 1500.0, 1e5]))
    assert survival.shape == (n, 4)
    assert (survival[:, 0] == 1).all()
    assert (np.diff(survival, axis=1) <= 0).all()
    np.testing.assert_allclose(np.exp(-hazard), survival, rtol=1e-12)
    near = tree.predict_cumulative_hazard_function(X, [1500.0 - 1e-4, 1500.0 + 1e-4])
    rate = tree.predict_hazard_function(X, [1500.0])[:, 0]
    np.testing.assert_allclose(rate, (near[:, 1] - near[:, 0]) / 2e-4, rtol=1e-5)
    np.testing.assert_array_equal(tree.event_times_, np.unique(gbsg2.time[gbsg2.event]))
    total = tree.predict_cumulative_hazard_function(X, "events").sum(axis=1)
    np.testing.assert_allclose(tree.predict(X), total, rtol=1e-12)
    probability = tree.predict_leaf_proba(X)
    assert probability.shape == (n, 4)
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-12)
    rows = np.asarray(tree._reading.nodes["rows"][[4, 5, 6, 7]])[tree.tree_.group_numbers.argsort()]
    assert (rows == np.bincount(tree.apply(X), minlength=5)[1:]).all()
    assert 0.6 < tree.score(X, (gbsg2.time, gbsg2.event)) < 0.85


def test_a_family_that_no_file_could_name_is_not_saved(small_data: SurvivalData, tmp_path: Path) -> None:
    class Own(LogLogistic):
        name = "own"

    tree = SoftSurvivalTree(depth=0, leaf=Own(), trainer=FAST, init="random", n_starts=1)
    tree.fit(small_data.frame, (small_data.time, small_data.event))
    with pytest.raises(ConfigError, match="not registered and could not be loaded again"):
        tree.save(tmp_path / "own")
    assert not (tmp_path / "own").exists()


def _simulated(n: int = 80) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(n, 3))
    return x, rng.exponential(np.exp(x[:, 0])) + 0.01, rng.uniform(size=n) < 0.6


def _quick(**values: object) -> SoftSurvivalTree:
    return soft_tree(**{"depth": 1, "n_starts": 2, "init": "random", "trainer": FAST, **values})


def test_rows_of_weight_zero_and_huge_weights_change_nothing() -> None:
    x, t, e = _simulated()
    one = _quick().fit(x, (t, e))
    more = np.r_[x, np.full((1, 3), 1e6)], (np.r_[t, 1e9], np.r_[e, True])
    two = _quick().fit(*more, sample_weight=np.r_[np.ones(80), 0.0])
    np.testing.assert_array_equal(one.predict(x), two.predict(x))
    assert two.summary(details=True) == one.summary(details=True)
    huge = _quick().fit(x, (t, e), sample_weight=np.full(80, 1e308))
    assert huge.objective_ == pytest.approx(one.objective_, rel=1e-9)


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


@FEW
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
    loaded = SoftSurvivalTree.load(tmp_path / "tree")
    np.testing.assert_array_equal(loaded.predict(x), tree.predict(x))
    assert (loaded.depth, loaded.dtype) == (1, "float64")
