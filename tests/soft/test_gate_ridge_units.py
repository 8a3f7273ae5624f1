"""The ridge on gates, in units of the columns' ranges or of their standard deviations."""

import numpy as np
import pandas as pd
import pytest

from sstorch import GatePenalties, SoftSurvivalTree, SurvivalData
from sstorch.data import Schema
from sstorch.data.design_matrix import DesignMatrix
from sstorch.reading import gate_coefficients
from sstorch.soft.batch import fit_preprocessors
from sstorch.soft.problems import _gate_deviations, stack_splits


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
