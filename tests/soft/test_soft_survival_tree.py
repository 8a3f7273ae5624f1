"""Soft survival trees: predictions and their meaning, leaf families, rows at the edge, scikit-learn."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from lifelines import CoxPHFitter, WeibullAFTFitter
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, cross_validate

from sstorch import GatePenalties, SoftSurvivalTree, Surv, SurvivalData
from sstorch.exceptions import ConfigError, DataWarning, FormatError
from sstorch.nn import FAMILIES, HazardFamily, Spline, Weibull, register_family
from sstorch.optim import LBFGSOptions, Nodec
from tests.conftest import covering, nightly, nightly_but
from tests.flat import soft_tree

FAST, ONE = Nodec(macro_iterations=2), Nodec(macro_iterations=1)
EXACT = Nodec(macro_iterations=1, lbfgs=LBFGSOptions(gradient_tolerance=1e-10, relative_tolerance=0.0))
FEW = pytest.mark.filterwarnings(r"ignore:\d+ (events? in|columns after):sstorch.exceptions.DataWarning")


def _tree(**options: object) -> SoftSurvivalTree:
    return soft_tree(**{"depth": 1, "n_starts": 2, "init": "random", "trainer": FAST, **options})


def _grown(data: SurvivalData, **options: object) -> SoftSurvivalTree:
    return _tree(**options).fit(data.frame, data.y)


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


@pytest.mark.parametrize("leaf", sorted(FAMILIES))
def test_every_leaf_grows_predicts_and_comes_back(
    leaf: str, small_data: SurvivalData, tmp_path: Path
) -> None:
    tree = _grown(small_data, leaf=leaf, trainer=ONE)
    x, times = small_data.frame, np.array([0.0, 1.0, 20.0, 500.0])
    survival = np.asarray(tree.predict_survival_function(x, times))
    assert (survival[:, 0] == 1).all()
    assert (np.diff(survival, axis=1) <= 0).all()
    assert tree.score(x, (small_data.time, small_data.event)) > 0.5
    tree.save(tmp_path / leaf)
    again = SoftSurvivalTree.load(tmp_path / leaf)
    np.testing.assert_array_equal(again.predict_survival_function(x, times), survival)
    assert again.module_.family.options() == tree.module_.family.options()
    assert again.summary(details=True) == tree.summary(details=True)


@pytest.mark.parametrize("leaf", [Weibull("linear"), Spline("odds", knots=1, ancillary="linear")])
def test_ancillary_regression_in_a_tree(leaf: HazardFamily, small_data: SurvivalData, tmp_path: Path) -> None:
    tree = _grown(small_data, leaf=leaf, ridge=1e-2)
    slopes = tree.module_.leaf_parameters().shape_slope
    assert slopes.shape == (2, len(leaf.shape_names), 3)
    assert slopes.abs().max() > 1e-3
    assert "shapes are those at x = 0" in tree.summary(details=True)
    tree.save(tmp_path / "linear")
    again = SoftSurvivalTree.load(tmp_path / "linear")
    np.testing.assert_array_equal(again.predict(small_data.frame), tree.predict(small_data.frame))
    # The row's own shape parameters are those of its leaf and features, written out.
    x = torch.as_tensor(tree.preprocessor_.transform(small_data.frame))
    node = int(tree.tree_.leaf(x)[5]) + 2
    module = tree.module_.leaf(node)
    shape = module.shape + module.shape_slope @ x[5]
    linear = module.intercept + module.slope @ x[5]
    y = torch.log(torch.tensor([13.0]).double()) - tree.module_.log_time_scale
    expected = tree.module_.family.cumulative_hazard(y, linear[None], shape[None, :])
    mine = np.asarray(tree.predict_cumulative_hazard_function(small_data.frame, [13.0]))[5]
    np.testing.assert_allclose(mine, expected.detach().numpy(), rtol=1e-10)


def test_left_truncation_equals_lifelines(gbsg2: SurvivalData) -> None:
    rng = np.random.default_rng(0)
    entry = np.where(rng.uniform(size=len(gbsg2)) < 0.5, rng.uniform(0, 0.9, len(gbsg2)) * gbsg2.time, 0.0)
    x = pd.get_dummies(gbsg2.frame, drop_first=True, dtype=float)
    x = (x - x.min()) / (x.max() - x.min())
    tree = _tree(depth=0, leaf="weibull", trainer=EXACT, n_starts=1, ridge=0.0)
    y = Surv(gbsg2.time, gbsg2.event, entry=entry)
    tree.fit(x, y)
    peer = WeibullAFTFitter().fit(
        x.assign(t=gbsg2.time, e=gbsg2.event, s=entry),
        "t",
        "e",
        entry_col="s",
        fit_options={"ftol": 1e-14, "maxiter": 1000},
    )
    value = tree.log_likelihood(x, y) * len(x)
    assert value == pytest.approx(peer.log_likelihood_, rel=1e-6)
    np.testing.assert_allclose(
        tree.module_.leaf(1).slope.detach(), peer.params_["lambda_"][x.columns], atol=1e-3
    )
    # Ignoring the entry times is another model.
    plain = clone(tree).fit(x, gbsg2.y)
    assert abs(plain.log_likelihood(x, y) * len(x) - value) > 1


@pytest.mark.parametrize(
    ("leaf", "prediction"),
    covering(["weibull", "log_normal", "spline_po", "piecewise_exponential"], ["hbp", "mixture"]),
)
def test_quantiles_and_restricted_means(leaf: str, prediction: str, small_data: SurvivalData) -> None:
    tree = _grown(small_data, leaf=leaf, prediction=prediction)
    x = small_data.frame[:4]
    for q in (0.1, 0.5):
        times = tree.predict_quantile(x, q)
        assert times.shape == (4,)
        for row, time in enumerate(times):
            survival = np.asarray(tree.predict_survival_function(x, [time]))[row, 0]
            assert survival == pytest.approx(1 - q, rel=1e-8)
    assert (tree.predict_rmst(x, np.inf) > tree.predict_rmst(x, 60.0)).all()
    for bad in (0.0, 1.0, -1.0, [0.5], True, "0.5"):
        with pytest.raises(ConfigError, match=r"q must be a number in \(0, 1\)"):
            tree.predict_quantile(x, bad)
    for bad in (0.0, np.nan, [5.0]):
        with pytest.raises(ConfigError, match="tau must be one positive number"):
            tree.predict_rmst(x, bad)


@pytest.mark.filterwarnings("ignore:column .* in all others")
@pytest.mark.parametrize(
    "leaf", nightly_but({"gompertz", "log_normal", "logistic_hazard", "spline_po"}, sorted(FAMILIES))
)
def test_a_leaf_with_one_row_or_without_events_stays_finite(leaf: str) -> None:
    """Two far-off rows, one censored and one with an event, which k-means gives leaves of their own."""
    rng = np.random.default_rng(2)
    x = np.vstack([rng.uniform(size=(40, 2)), [[50.0, 0.0], [0.0, 50.0]]])
    time = np.r_[rng.weibull(1.3, 40) * 10, 3.0, 4.0]
    event = np.r_[rng.uniform(size=40) < 0.7, False, True]
    tree = _tree(depth=2, leaf=leaf, trainer=ONE, n_starts=1).fit(x, (time, event))
    curves = np.asarray(tree.predict_survival_function(x, np.linspace(0, 100, 50)))
    assert np.isfinite(curves).all()
    assert np.isfinite(tree.objective_)
    assert all(parameter.isfinite().all() for parameter in tree.module_.parameters())


@pytest.mark.parametrize("leaf", ["spline_ph", "spline_po", "spline_probit", "spline"])
def test_cox_start_follows_a_cox_model_of_the_rows_with_an_event(leaf: str, gbsg2: SurvivalData) -> None:
    """At depth 0 the draw is a bootstrap sample of those rows: its curves resemble Cox's on all of them."""
    none = Nodec(macro_iterations=1, lbfgs=LBFGSOptions(max_iterations=0))
    tree = _grown(gbsg2, leaf=leaf, init="cox", n_starts=1, depth=0, trainer=none)
    x = pd.DataFrame(tree.preprocessor_.transform(gbsg2.frame)[gbsg2.event])
    time = gbsg2.time[gbsg2.event]
    peer = CoxPHFitter(penalizer=1e-3).fit(x.assign(t=time), "t")
    times = np.quantile(time, [0.25, 0.5, 0.75])
    theirs = peer.predict_survival_function(x, times=times).to_numpy().T
    mine = np.asarray(tree.predict_survival_function(gbsg2.frame[gbsg2.event], times))
    assert np.abs(mine - theirs).mean() < 0.06
    assert np.corrcoef(mine[:, 1], theirs[:, 1])[0, 1] > 0.8
    again = _grown(gbsg2, leaf=leaf, init="cox", n_starts=1, depth=0, trainer=none)
    assert again.objective_ == tree.objective_


@FEW
def test_cox_start_falls_back_where_no_cox_model_can_be_fitted() -> None:
    """One event a leaf, and a feature that is the same in all rows with an event."""
    x = np.r_[np.zeros(3), np.linspace(0, 1, 20)][:, None]
    time, event = np.r_[2.0, 3.0, 5.0, np.linspace(1, 9, 20)], np.arange(23) < 3
    tree = _tree(leaf="spline_po", init="cox").fit(x, (time, event))
    assert np.isfinite(tree.objective_)


def _rayleigh() -> type[HazardFamily]:
    class Rayleigh(HazardFamily):
        name, shape_names = "rayleigh", ()

        def cumulative_hazard(
            self, log_time: torch.Tensor, linear: torch.Tensor, shape: torch.Tensor
        ) -> torch.Tensor:
            return torch.exp(2 * (log_time - linear))

    return Rayleigh


def test_a_family_of_a_user_is_saved_by_its_name_once_registered(
    small_data: SurvivalData, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="not registered and could not be loaded again"):
        _grown(small_data, leaf=_rayleigh()()).save(tmp_path / "rayleigh")
    assert not (tmp_path / "rayleigh").exists()
    for _ in range(2):  # as a cell of a notebook that is run again
        register_family(_rayleigh())
    try:
        tree = _grown(small_data, leaf="rayleigh")
        tree.save(tmp_path / "rayleigh")
        again = SoftSurvivalTree.load(tmp_path / "rayleigh")
        np.testing.assert_array_equal(again.predict(small_data.frame), tree.predict(small_data.frame))
        assert (np.asarray(tree.predict_hazard_function(small_data.frame, [5.0])) > 0).all()
    finally:
        del FAMILIES["rayleigh"]
    with pytest.raises(FormatError, match="unknown leaf 'rayleigh': first import the module that defines it"):
        SoftSurvivalTree.load(tmp_path / "rayleigh")


@pytest.mark.filterwarnings("ignore:.*far outside its training range:sstorch.exceptions.DataWarning")
def test_a_mean_that_a_leaf_out_of_reach_has_not(gbsg2: SurvivalData) -> None:
    """A sentinel sends rows so far into one leaf that the others' probability is 0 by underflow."""
    far = gbsg2.frame.assign(age=np.where(np.arange(len(gbsg2)) < 30, 99999.0, gbsg2.frame["age"]))
    for leaf in ("gompertz", "weibull"):
        tree = _grown(gbsg2, depth=2, leaf=leaf, trainer="joint", n_starts=1, prediction="mixture")
        for tau in (1825.0, np.inf):
            assert not np.isnan(tree.predict_rmst(far, tau)).any()


# ------------------------------------------------------------------ rows at the edge


def test_rows_of_weight_zero_and_huge_weights_change_nothing(small_data: SurvivalData) -> None:
    x, t, e = small_data.frame.to_numpy(), small_data.time, small_data.event
    one = _tree().fit(x, (t, e))
    more = np.r_[x, np.full((1, 3), 1e6)], (np.r_[t, 1e9], np.r_[e, True])
    two = _tree().fit(*more, sample_weight=np.r_[np.ones(120), 0.0])
    np.testing.assert_array_equal(one.predict(x), two.predict(x))
    assert two.summary(details=True) == one.summary(details=True)
    huge = _tree().fit(x, (t, e), sample_weight=np.full(120, 1e308))
    assert huge.objective_ == pytest.approx(one.objective_, rel=1e-9)


def test_a_time_of_zero_is_scored_as_in_training(small_data: SurvivalData) -> None:
    x, t, e = small_data.frame.to_numpy(), small_data.time, small_data.event
    with pytest.warns(DataWarning, match="1 event at time zero"):
        tree = _tree().fit(x, (np.r_[0.0, t[1:]], np.r_[True, e[1:]]))
    values = []
    for other in (3.0, 1000.0):
        with pytest.warns(DataWarning, match="zero moved to"):
            both = tree.log_likelihood(x[:2], ([0.0, other], [True, True]))
        values.append(2 * both - tree.log_likelihood(x[1:2], ([other], [True])))
    assert values[0] == pytest.approx(values[1], rel=1e-12)


@FEW
@pytest.mark.parametrize(
    ("n", "init"), [(2, "kmeans"), nightly(3, "random"), nightly(5, "kmeans"), nightly(5, "random")]
)
def test_very_few_rows(n: int, init: str, small_data: SurvivalData) -> None:
    x = small_data.frame[:n]
    tree = _tree(depth=2, init=init).fit(x, (small_data.time[:n], np.ones(n)))
    assert np.isfinite(tree.predict_survival_function(x)).all()
    assert np.isfinite(tree.objective_)


def test_a_saved_tree_is_the_fitted_one_whatever_was_set_since(
    small_data: SurvivalData, tmp_path: Path
) -> None:
    tree = _grown(small_data)
    tree.set_params(depth=3, dtype="float32").save(tmp_path / "tree")
    loaded = SoftSurvivalTree.load(tmp_path / "tree")
    np.testing.assert_array_equal(loaded.predict(small_data.frame), tree.predict(small_data.frame))
    assert (loaded.depth, loaded.dtype) == (1, "float64")


# ------------------------------------------------------------------ scikit-learn


def test_metadata_is_routed_to_fit_and_score(gbsg2: SurvivalData) -> None:
    X, rng, weight = gbsg2.frame, np.random.default_rng(3), "sample_weight"
    weights = rng.integers(1, 4, len(gbsg2)).astype(float)
    extra = {weight: weights, "sensitive": X["menostat"]}
    y = Surv(gbsg2.time, gbsg2.event, entry=0.3 * gbsg2.time * rng.uniform(size=len(gbsg2)))
    tree = _tree(n_starts=1, trainer=ONE, fairness="l2", rho=0.01)
    with sklearn.config_context(enable_metadata_routing=True):
        asked = clone(tree).set_fit_request(sample_weight=True, sensitive=True)
        with pytest.raises(UnsetMetadataPassedError, match=r"\[sample_weight\] are passed but are not"):
            cross_validate(asked, X, y, params=extra)
        asked.set_score_request(sample_weight=True)
        found = cross_validate(asked, X, y, cv=2, params=extra, return_indices=True)
        search = GridSearchCV(asked, {"depth": [1]}, cv=2).fit(X, y, **extra)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"][0], found["test_score"].mean())
    train, test = found["indices"]["train"][0], found["indices"]["test"][0]
    groups = X["menostat"].iloc[train]
    by_hand = clone(tree).fit(X.iloc[train], y[train], sample_weight=weights[train], sensitive=groups)
    rows = X.iloc[test], y[test]
    score = by_hand.score(*rows, sample_weight=weights[test])
    assert found["test_score"][0] == pytest.approx(score, rel=1e-12)
    from_zero = Surv(y.time[test], y.event[test], entry=np.zeros(len(test)))  # type: ignore[index]
    assert len({score, by_hand.score(*rows), by_hand.score(rows[0], from_zero, weights[test])}) == 3
