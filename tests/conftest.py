"""Settings of the suite and batches of trees that several rooms test with."""

import os

# Many tiny operations: a second thread gains nothing, and on a busy machine waiting for it costs much.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import torch

from sstorch.data import SurvivalData, load_dataset

devices = pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[
                pytest.mark.cuda,
                pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
            ],
        ),
    ],
)


@pytest.fixture(scope="session")
def gbsg2() -> SurvivalData:
    """Real patients: 686 rows, 8 features, 299 events."""
    return load_dataset("gbsg2")


@pytest.fixture(scope="session")
def small_data() -> SurvivalData:
    """120 simulated rows, 3 features, two groups with different hazards, ties and censoring."""
    rng = np.random.default_rng(7)
    x = rng.uniform(size=(120, 3))
    time = np.ceil(40 * rng.weibull(1.4, 120) * np.exp(1.5 * x[:, 0] - x[:, 1]))
    censoring = rng.uniform(20, 120, 120).round()
    event = time <= censoring
    return SurvivalData(x, (np.minimum(time, censoring), event))
