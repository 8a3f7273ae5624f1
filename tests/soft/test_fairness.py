"""Fairness in the estimator and in batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from sstorch import Penalties, SoftSurvivalTree, SurvivalData
from sstorch.bench import score_fairness
from sstorch.exceptions import ConfigError, DataError
from sstorch.objective import L2Parity
from sstorch.optim import Joint, Nodec, NodecJoint
from sstorch.reading import leaf_table
from sstorch.soft.batch import train_batch
from tests.conftest import nightly
from tests.flat import soft_tree

FAST = Nodec(macro_iterations=2)


@pytest.fixture(scope="module")
def cohort() -> pd.DataFrame:
    """Two groups whose members differ in a feature that predicts survival; few different rows."""
    rng = np.random.default_rng(1)
    sex = rng.uniform(size=160) < 0.45
    x = pd.DataFrame(
        {
            "risk": np.round(rng.uniform(size=160) + 0.4 * sex, 1),
            "other": np.round(rng.uniform(size=160), 1),
            "sex": np.where(sex, "female", "male"),
        }
    )
    time = rng.weibull(1.3, 160) * np.exp(1.5 - 1.8 * x["risk"]) + 0.01
    censoring = rng.exponential(6, 160)
    return x.assign(time=np.minimum(time, censoring), event=time <= censoring)


def _data(cohort: pd.DataFrame) -> SurvivalData:
    return SurvivalData.from_frame(cohort).with_sensitive("sex")


def _fit(cohort: pd.DataFrame, sensitive: object = "sex", **options: object) -> SoftSurvivalTree:
    settings = {"depth": 1, "n_starts": 2, "init": "random", "trainer": FAST} | options
    tree = soft_tree(**settings)  # type: ignore[arg-type]
    X = cohort[["risk", "other", "sex"]]
    return tree.fit(X, (cohort["time"], cohort["event"]), sensitive=sensitive)


def _parity(tree: SoftSurvivalTree, cohort: pd.DataFrame) -> float:
    data = _data(cohort)
    return score_fairness(tree, data, data)["parity"]


@pytest.mark.parametrize(
    ("fairness", "trainer"),
    [
        ("l2", FAST),
        nightly("l2_relaxed", FAST),  # as the first part of the last
        nightly("l2_relaxed", Joint()),
        nightly("l2_relaxed", NodecJoint(FAST)),
    ],
)
def test_penalty_falls_with_rho(cohort: pd.DataFrame, fairness: str | L2Parity, trainer: object) -> None:
    parities = [
        _parity(_fit(cohort, fairness=fairness, rho=rho, trainer=trainer), cohort) for rho in (0.0, 0.3, 3.0)
    ]
    assert parities[0] > 0.05
    assert parities[0] > 1.5 * parities[1] > 2 * parities[2]


def test_sensitive_column_is_no_feature_unless_its_values_are_given(cohort: pd.DataFrame) -> None:
    tree = _fit(cohort, fairness="l2", rho=0.1)
    assert list(tree.feature_names_in_) == ["risk", "other"]
    X = cohort[["risk", "other", "sex"]]
    np.testing.assert_array_equal(tree.predict(X), tree.predict(X.drop(columns="sex")))
    swapped = X.assign(sex=X["sex"].map({"male": "female", "female": "male"}))
    np.testing.assert_array_equal(tree.predict(X), tree.predict(swapped))
    kept = _fit(cohort, sensitive=cohort["sex"], fairness="l2", rho=0.1)
    assert list(kept.feature_names_in_) == ["risk", "other", "sex"]
    table = leaf_table(tree)
    share = np.average(table["sex=female", ""].fillna(0.0), weights=table["rows", ""])
    assert share == pytest.approx((cohort["sex"] == "female").mean())
    assert "sex=female" in tree.summary(details=True)


def test_objective_is_likelihood_and_penalties(cohort: pd.DataFrame) -> None:
    """The training objective at its point, put together from the parts that users see."""
    tree = _fit(cohort, fairness="l2", rho=0.7, ridge=0.0, gate_ridge=0.0, depth=0, n_starts=1)
    X, y = cohort[["risk", "other"]], (cohort["time"], cohort["event"])
    loss = -tree.log_likelihood(X, y)
    # Likelihoods are of log time in the model: the unit of time shifts them.
    loss -= float(cohort["event"].mean() * tree.module_.log_time_scale)
    assert tree.objective_ == pytest.approx(loss + 0.7 * _parity(tree, cohort), rel=1e-9)


@pytest.mark.nightly
def test_equal_rows_are_counted_once(cohort: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a group with the same features share their curve; counting them apart gives the same trees."""
    for fairness in ("l2", "l2_relaxed"):
        short = {"trainer": Nodec(macro_iterations=1), "depth": 2, "n_starts": 1}
        merged = _fit(cohort, fairness=fairness, rho=0.5, **short)
        with monkeypatch.context() as patch:
            patch.setattr("sstorch.soft.problems._FEW_EQUAL", -1.0)
            apart = _fit(cohort, fairness=fairness, rho=0.5, **short)
        assert merged.objective_ == pytest.approx(apart.objective_, rel=1e-4)
        steps, others = merged.history_.steps, apart.history_.steps
        np.testing.assert_allclose(
            steps["objective_before"].to_numpy()[:3], others["objective_before"].to_numpy()[:3], rtol=1e-9
        )


def test_rhos_are_a_dimension_of_the_batch(cohort: pd.DataFrame) -> None:
    data = _data(cohort)
    estimator = SoftSurvivalTree(
        depth=1, trainer=FAST, init="random", n_starts=2, penalties=Penalties(fairness="l2")
    )
    splits = [data.subset(range(0, 120)), data.subset(range(30, 160))]
    strengths = [replace(estimator._batch_settings().coefficients, rho=rho) for rho in (0.0, 2.0)]
    batch = train_batch(splits, estimator._batch_settings(), coefficients=strengths)
    positions = [batch.position(s, t, k) for s in range(2) for k in range(2) for t in range(2)]
    assert positions == list(range(batch.tree.n_problems)) == list(range(8))
    for k, rho in enumerate((0.0, 2.0)):
        alone = train_batch(splits, estimator.set_params(penalties__rho=rho)._batch_settings())
        for split in range(2):
            own = [int(batch.position(split, t, k)) for t in range(2)]
            torch.testing.assert_close(
                batch.objective[own], alone.objective[2 * split : 2 * split + 2], rtol=1e-5, atol=0
            )
            assert batch.best_start(split, k) == alone.best_start(split)
    first = batch.history.macro_iterations.query("macro_iteration == 0").set_index("problem")
    assert first.loc[0, "mass_2"] == first.loc[2, "mass_2"]  # every rho begins from the same trees


def test_groups_that_cannot_be_compared_are_refused(cohort: pd.DataFrame) -> None:
    data = _data(cohort)
    men = data.subset(np.flatnonzero(cohort["sex"] == "male"))
    settings = SoftSurvivalTree(
        depth=1, trainer=FAST, penalties=Penalties(fairness="l2", rho=1.0)
    )._batch_settings()
    with pytest.raises(DataError, match="training rows of split 1 are all of one group, sex=male"):
        train_batch([data, men], settings)
    missing = cohort.assign(sex=cohort["sex"].where(cohort.index != 4))
    with pytest.raises(DataError, match=r"sensitive column 'sex' is missing in 1 row \(0-based position 4\)"):
        _fit(missing, fairness="l2", rho=1.0)
    with pytest.raises(ConfigError, match="sensitive="):
        _fit(cohort, fairness="l2", sensitive=None)
    one = cohort.assign(sex=np.where(cohort.index == 7, "female", "male"))
    assert np.isfinite(_fit(one, fairness="l2", rho=1.0).objective_)
