"""A torch module in front of a tree: trained on survival times, in pipelines, folds and files."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from torch import nn

from sstorch import PrognosticTree, Surv, SurvivalRegression
from sstorch.exceptions import ConfigError
from sstorch.soft import TorchEncoder


@pytest.fixture(scope="module")
def rows() -> tuple[pd.DataFrame, Surv]:
    """Whose risk is a product of two columns, which no regression with straight lines sees."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.uniform(-1, 1, size=(600, 2)), columns=["a", "b"])
    time = rng.exponential(np.exp(-3 * x["a"] * x["b"]))
    return x, Surv(np.minimum(time, 3), time < 3)


@pytest.mark.nightly
def test_encoder_finds_what_the_regression_alone_does_not(rows: tuple[pd.DataFrame, Surv]) -> None:
    x, y = rows
    encoder = TorchEncoder(epochs=60, learning_rate=0.02)
    scores = cross_val_score(make_pipeline(encoder, SurvivalRegression()), x, y, cv=3)
    assert scores.mean() > cross_val_score(SurvivalRegression(), x, y, cv=3).mean() + 0.08


def test_own_module_is_copied_and_trained(rows: tuple[pd.DataFrame, Surv]) -> None:
    x, y = rows
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    before = module[0].weight.clone()
    encoder = TorchEncoder(module, epochs=3).fit(x, y)
    assert torch.equal(module[0].weight, before)
    assert not torch.equal(encoder.module_[0].weight, before)
    assert list(encoder.transform(x)) == ["z1"]
    assert clone(encoder).fit(x, y).loss_ == encoder.loss_


def test_pipeline_reads_and_saves(rows: tuple[pd.DataFrame, Surv], tmp_path: Path) -> None:
    x, y = rows
    model = make_pipeline(TorchEncoder(epochs=3), PrognosticTree(depth=1)).fit(x, y)
    assert "z" in model[-1].describe()
    model[0].save(tmp_path / "encoder")
    model[-1].save(tmp_path / "tree")
    encoder = TorchEncoder.load(tmp_path / "encoder")
    tree = PrognosticTree.load(tmp_path / "tree")
    np.testing.assert_array_equal(tree.predict(encoder.transform(x)), model.predict(x))
    with pytest.raises(ConfigError, match="not the one that was saved"):
        TorchEncoder.load(tmp_path / "encoder", nn.Linear(2, 3))


def test_module_of_another_shape_raises(rows: tuple[pd.DataFrame, Surv]) -> None:
    with pytest.raises(ConfigError, match=r"does not take encoded columns, \(n, 2\)"):
        TorchEncoder(nn.Linear(3, 1)).fit(*rows)
    with pytest.raises(ConfigError, match="must map"):
        TorchEncoder(nn.Flatten(0)).fit(*rows)
    with pytest.raises(ConfigError, match="holdout"):
        TorchEncoder(holdout=1.0).fit(*rows)
