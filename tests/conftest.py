"""Settings of the suite and batches of trees that several rooms test with."""

import os
import sys

# Many tiny operations: a second thread gains nothing, and on a busy machine waiting for it costs much.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# pycox computes with numba, which would set the number of threads of torch to its own.
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import combinations, product
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch

from sstorch.data import SurvivalData, load_dataset

hypothesis.settings.register_profile("quick", max_examples=25, deadline=None)
hypothesis.settings.register_profile("nightly", max_examples=150, deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="run the tests marked nightly, too")


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.load_profile("nightly" if config.getoption("nightly") else "quick")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name == "recipes.md":
            item.add_marker("nightly")
    if config.getoption("nightly"):
        return
    left_out = [item for item in items if item.get_closest_marker("nightly")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]


def nightly(*values: object) -> Any:
    """A case of a parametrized test that only the nightly run has."""
    return pytest.param(*values, marks=pytest.mark.nightly)


def nightly_but(daily: Container[str], names: Iterable[str]) -> list[Any]:
    """Cases by name: some in every run, the others in the nightly run."""
    return [name if name in daily else nightly(name) for name in names]


def covering(*axes: Sequence[object], strength: int = 1) -> list[Any]:
    """All combinations of values of axes; those that the strength, 2 for pairs, does not need are nightly."""

    def covered(places: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
        return set(combinations(enumerate(places), strength))

    every = list(product(*(range(len(axis)) for axis in axes)))
    left = set().union(*map(covered, every))
    daily = set()
    while left:
        best = max(every, key=lambda places: len(covered(places) & left))
        daily.add(best)
        left -= covered(best)
    return [
        (pytest.param if places in daily else nightly)(
            *(axis[place] for axis, place in zip(axes, places, strict=True))
        )
        for places in every
    ]


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


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    """Close what a test has drawn: pyplot keeps figures, and warns of more than twenty."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(scope="session")
def all_night(pytestconfig: pytest.Config) -> bool:
    """Whether this is the nightly run, where a check may take its time."""
    return bool(pytestconfig.getoption("nightly"))


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
