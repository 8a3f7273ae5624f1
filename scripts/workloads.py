"""What the scripts that compare speeds train and predict: folds of real data, and simulated rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from sstorch import SoftSurvivalTree, load_dataset
from sstorch.data import Preprocessor, Schema, stratified_folds
from sstorch.nn import DesignMatrix, SoftTree
from sstorch.objective import Sample
from sstorch.optim.starts.clusters import initialize_random, problem_seed
from sstorch.soft.problems import stack_splits

N_FOLDS = 5
DEPTH = 2


def make_batch(
    name: str, n_starts: int, device: str, dtype: str = "float64", leaf: str = "log_logistic"
) -> tuple[SoftTree, Sample]:
    """Untrained trees on the training rows of each fold, fold by fold, random starts."""
    data = load_dataset(name)
    folds = stratified_folds(data.event, N_FOLDS, seed=0)
    splits = [data.subset(folds != fold) for fold in range(N_FOLDS)]
    schema = Schema.of(data.frame)
    tree = SoftSurvivalTree(
        depth=DEPTH, leaf=leaf, init="random", n_starts=n_starts, device=device, dtype=dtype
    )
    settings = tree._batch_settings()
    preprocessors = [Preprocessor(schema).fit(part.frame) for part in splits]
    encoded = [own.transform(part.frame) for own, part in zip(preprocessors, splits, strict=True)]
    x = DesignMatrix.stack(encoded)
    batch, sample = stack_splits(splits, x, preprocessors[0], settings)
    seeds = [problem_seed(0, fold, start) for fold in range(N_FOLDS) for start in range(n_starts)]
    initialize_random(batch, sample, seeds)
    return batch, sample


@dataclass(frozen=True)
class Size:
    """What is trained."""

    rows: int = 3000
    features: int = 10
    depth: int = 2
    batch: int = 20

    @property
    def leaves(self) -> int:
        """Leaves of a tree."""
        return 2**self.depth


def simulate(size: Size, device: str, dtype: torch.dtype = torch.float64) -> Sample:
    """Log-logistic times whose level and effects differ in four groups; a third or so are censored."""
    draws = torch.Generator().manual_seed(size.rows)
    x = torch.rand(size.rows, size.features, generator=draws, dtype=torch.float64)
    group = 2 * (x[:, 0] > 0.5) + (x[:, 1] + x[:, 2] > 1)
    effects = torch.randn(4, size.features, generator=draws, dtype=torch.float64) / size.features**0.5
    uniform = torch.rand(2, size.rows, generator=draws, dtype=torch.float64).clamp(1e-12, 1 - 1e-12)
    linear = torch.tensor([-0.8, 0.0, 0.4, 1.2], dtype=torch.float64)[group] + (x * effects[group]).sum(-1)
    log_time = linear + 0.4 * torch.logit(uniform[0])
    log_censored = 0.8 + 0.8 * torch.logit(uniform[1])
    event = (log_time <= log_censored).double()
    log_time = torch.minimum(log_time, log_censored)
    log_time = log_time - log_time.mean()

    def shared(values: torch.Tensor) -> torch.Tensor:
        return values.to(device, dtype).expand(size.batch, -1)

    matrices = x[None].to(device, dtype)
    weight = torch.ones(size.rows, dtype=torch.float64)
    return Sample(DesignMatrix(matrices, (size.batch,)), shared(log_time), shared(event), shared(weight))


def cohort(n: int, n_times: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Simulated rows with times on a grid of ``n_times`` values, all of which occur."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 6)), columns=[f"number_{j}" for j in range(6)])
    for j, words in enumerate((["a", "b", "c"], ["low", "high"])):
        frame[f"word_{j}"] = pd.Categorical.from_codes(rng.integers(0, len(words), n), words)
    risk = frame["number_0"] - frame["number_1"] * (frame["word_1"] == "high")
    time = np.exp(-0.7 * risk.to_numpy()) * rng.exponential(size=n)
    rank = np.argsort(np.argsort(time, kind="stable"), kind="stable")
    return frame, 1.0 + rank * n_times // n, rng.uniform(size=n) < 0.7
