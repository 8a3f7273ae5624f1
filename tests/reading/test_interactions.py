"""Interactions agree with predictions."""

import numpy as np
import pandas as pd
import pytest

from sstorch import Columns, Penalties, PrognosticTree, SurvivalData, SurvivalRegression, load_dataset
from sstorch.exceptions import ConfigError
from sstorch.plots import plot_interactions
from sstorch.reading import interactions

PAIRS = [("age", "horTh"), ("pnodes", "tsize")]
FIXED = Penalties(ridge=1e-3)  # estimated, all products of GBSG2 would be zero


@pytest.fixture(scope="module")
def regression(gbsg2: SurvivalData) -> SurvivalRegression:
    return SurvivalRegression("weibull", FIXED, columns=Columns(interactions=PAIRS)).fit(gbsg2.frame, gbsg2.y)


def test_an_effect_is_what_predictions_have_beyond_both_columns(
    regression: SurvivalRegression, gbsg2: SurvivalData
) -> None:
    table = interactions(regression, gbsg2.frame, n_points=5)
    assert list(table)[:6] == ["group", "column", "other", "value", "other value", "effect"]
    for (column, other), own in table.groupby(["column", "other"], sort=False):
        shape = own["value"].nunique(), own["other value"].nunique()
        rows = gbsg2.frame.iloc[[0] * len(own)].reset_index(drop=True)
        rows[column] = own["value"].to_numpy()
        rows[other] = own["other value"].to_numpy()
        if isinstance(rows[other][0], str):
            rows[other] = pd.Categorical(rows[other], gbsg2.frame[other].cat.categories)
            shares = gbsg2.frame[other].value_counts(normalize=True)[rows[other][: shape[1]]].to_numpy()
        else:
            shares = np.full(shape[1], 1 / shape[1])
        log_hazard = np.log(regression.predict_cumulative_hazard_function(rows, [700.0])).reshape(shape)
        log_hazard = log_hazard - log_hazard.mean(0)
        log_hazard = log_hazard - (log_hazard @ shares)[:, None]
        # The predictor is in log time, the hazard a power of time.
        effect = own["effect"].to_numpy().reshape(shape)
        power = log_hazard[0, 0] / effect[0, 0]
        np.testing.assert_allclose(log_hazard, power * effect, rtol=1e-7, atol=1e-12)
        assert own["size"].nunique() == 1
    assert table["size"].is_monotonic_decreasing


def test_the_strongest_pair_is_the_one_that_was_simulated() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(400, 4)), columns=list("abcd"))
    time = rng.exponential(np.exp(-1.5 * frame["b"] * frame["d"] + 2 * frame["a"]))
    data = SurvivalData(frame, (time, np.ones(400, dtype=bool)))
    regression = SurvivalRegression(columns=Columns(interactions="all")).fit(data.frame, data.y)
    table = interactions(regression, data.frame)
    sizes = table.groupby(["column", "other"], sort=False)["size"].first()
    assert sizes.index[0] == ("b", "d")
    assert sizes.iloc[0] > 3 * sizes.iloc[1]  # an effect of one column is no interaction


def test_each_cause_has_its_products() -> None:
    data = load_dataset("mgus2").subset(np.arange(400))
    pairs = Columns(interactions=[("age", "hgb")])
    tree = PrognosticTree(penalties=FIXED, columns=pairs, teacher="predictor").fit(data.frame, data.y)
    table = interactions(tree, data.frame, n_points=3)
    assert set(table["cause"]) == set(tree.causes_)
    ax = plot_interactions(tree, data.frame, cause=tree.causes_[1])[0]
    assert tree.causes_[1] in ax.figure.get_suptitle()


def test_maps_are_drawn_one_a_pair(regression: SurvivalRegression, gbsg2: SurvivalData) -> None:
    axes = plot_interactions(regression, gbsg2.frame)
    drawn = {(ax.get_xlabel(), ax.get_ylabel()) for ax in axes}
    assert drawn == set(PAIRS)


def test_a_model_without_products_says_how_to_have_them(gbsg2: SurvivalData) -> None:
    regression = SurvivalRegression("weibull", columns=Columns(numeric="linear")).fit(gbsg2.frame, gbsg2.y)
    with pytest.raises(ConfigError, match="interactions"):
        interactions(regression, gbsg2.frame)
