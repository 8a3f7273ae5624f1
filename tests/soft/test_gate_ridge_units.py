"""The ridge on gates, in units of the columns' ranges or of their standard deviations."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sstorch import GatePenalties, SoftSurvivalTree, SurvivalData
from sstorch.data import Schema
from sstorch.data.design_matrix import DesignMatrix
from sstorch.exceptions import ConfigError
from sstorch.optim import Nodec
from sstorch.reading import gate_coefficients
from sstorch.soft import BatchSettings
from sstorch.soft.batch import fit_preprocessors
from sstorch.soft.problems import _gate_deviations
from sstorch.soft.sample import stack_splits
from tests.flat import soft_tree


def test_units_by_default() -> None:
    assert SoftSurvivalTree()._batch_settings().gate_ridge_units == "range"
    paper = SoftSurvivalTree.paper(penalties=GatePenalties(gate_ridge=0.1))._batch_settings()
    assert (paper.gate_ridge, paper.gate_ridge_units, paper.min_leaf) == (0.1, "range", 0.0)
    with pytest.raises(ConfigError, match="gate_ridge_units must be one of range, sd"):
        BatchSettings.check(gate_ridge_units="iqr")


def test_units_without_effect_are_not_compared() -> None:
    """Those of gates that stay, of two runs."""
    assert "gate_ridge_units" not in BatchSettings.check().facts()
    for units in ("range", "sd"):
        settings = SoftSurvivalTree(
            trainer="nodec", penalties=GatePenalties(gate_ridge_units=units)
        )._batch_settings()
        assert settings.facts()["gate_ridge_units"] == units


def test_deviations_are_those_of_the_rows_of_each_split(small_data: SurvivalData) -> None:
    weight = np.where(np.arange(len(small_data)) % 2, 1.0, 3.0)
    splits = [small_data.reweighted(weight).subset(range(70)), small_data.subset(range(30, 120))]
    frame = splits[0].frame.assign(constant=1.0)
    splits = [
        SurvivalData(part.frame.assign(constant=1.0), part.y, sample_weight=part.sample_weight)
        for part in splits
    ]
    settings = SoftSurvivalTree(leaf="log_logistic", init="random", n_starts=2)._batch_settings()
    preprocessors = fit_preprocessors(splits, settings, Schema.of(frame))
    features = [each.transform(part.frame) for each, part in zip(preprocessors, splits, strict=True)]
    x = DesignMatrix.stack(features)
    found = _gate_deviations(*stack_splits(splits, x, preprocessors[0], settings)).numpy()
    for k, (part, preprocessor) in enumerate(zip(splits, preprocessors, strict=True)):
        x, w = preprocessor.transform(part.frame), part.sample_weight
        mean = np.average(x, axis=0, weights=w)
        deviation = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=w))
        assert (deviation == 0).any()
        for start in range(2):
            np.testing.assert_allclose(
                found[2 * k + start], np.where(deviation > 0, deviation, 1.0), rtol=1e-12
            )


@pytest.mark.parametrize(
    "parameters",
    [
        {"trainer": Nodec(macro_iterations=3), "init": "kmeans", "n_starts": 1},
        {"trainer": "joint", "init": "random", "n_starts": 1},
        {"trainer": "joint", "init": "distilled", "min_leaf": 0.0},
    ],
)
def test_of_one_column_a_unit_is_a_factor(small_data: SurvivalData, parameters: dict[str, object]) -> None:
    X = small_data.frame.iloc[:, :1]
    column = X.iloc[:, 0].to_numpy(float)
    deviation = column.std() / np.ptp(column)
    trees = [
        soft_tree(depth=2, leaf="weibull", gate_ridge=strength, gate_ridge_units=units, **parameters).fit(
            X, small_data.y
        )
        for units, strength in (("sd", 1e-2), ("range", 1e-2 * deviation**2), ("range", 1e-2))
    ]
    weights = [gate_coefficients(tree)["coefficient"].to_numpy(float) for tree in trees]
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-6)
    assert not np.allclose(weights[0], weights[2], rtol=1e-2)


def test_units_are_kept(small_data: SurvivalData, tmp_path: Path) -> None:
    parameters = {"trainer": "joint", "init": "random", "n_starts": 1, "gate_ridge_units": "sd"}
    tree = soft_tree(depth=1, min_leaf=0.2, **parameters).fit(small_data.frame, small_data.y)
    tree.save(tmp_path / "tree")
    loaded = SoftSurvivalTree.load(tmp_path / "tree")
    assert (loaded.penalties.gate_ridge_units, loaded.min_leaf) == ("sd", 0.2)


@pytest.mark.filterwarnings("ignore:.*in every column")
def test_a_long_tail_costs_less(gbsg2: SurvivalData) -> None:
    """Half of all progesterone receptors are below 33, the largest is 2380: on [0, 1] its gates are dear."""
    X = pd.DataFrame({"progrec": gbsg2.frame["progrec"], "age": gbsg2.frame["age"]})
    used = []
    for units in ("range", "sd"):
        tree = SoftSurvivalTree(
            depth=1,
            trainer="joint",
            init="kmeans",
            n_starts=1,
            penalties=GatePenalties(gate_ridge=1e-3, gate_ridge_units=units),
        ).fit(X, gbsg2.y)
        weight = gate_coefficients(tree)["coefficient"].abs()
        spread = {name: float(X[name].std()) for name in X}
        used.append(weight[1, "progrec"] * spread["progrec"])
    assert used[1] > 1.5 * used[0]
