"""One limit of memory: how it is said, what it cuts, and that it changes no result; threads of a fit."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import ThreadpoolController

from sstorch import (
    OptimalSurvivalTree,
    PrognosticTree,
    SoftSurvivalTree,
    SurvivalData,
    SurvivalRegression,
    memory,
    metrics,
)
from sstorch.bench import cross_validate
from sstorch.exceptions import ConfigError
from sstorch.metrics.grids import thinned
from sstorch.threads import FEW, listening, one_blas_thread, threads_for, torch_threads


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1000", 1000), ("2e6", 2_000_000), ("1.5GiB", 3 * 2**29), ("64 MiB", 2**26), ("5kb", 5000)],
)
def test_bytes_and_their_units(text: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.set_limit() is None
    monkeypatch.setenv(memory.VARIABLE, text)
    assert memory.set_limit() == expected


@pytest.mark.parametrize("text", ["much", "0", "-1", "5 parsecs", "inf"])
def test_what_is_no_number_of_bytes_raises(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(memory.VARIABLE, text)
    with pytest.raises(ConfigError, match=f"{memory.VARIABLE} is .*; give bytes"):
        memory.at_once(1, 10)


def test_blocks_follow_the_limit_or_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 4 * 32 * 1000)
    memory._free.cache_clear()
    assert [memory.at_once(*size) for size in ((10, 5000), (10, 500), (5000, 500))] == [100, 50, 1]
    monkeypatch.setenv(memory.VARIABLE, "6400")
    assert memory.at_once(10, 5000) == 20
    memory._free.cache_clear()


@pytest.mark.parametrize("estimator", [SurvivalRegression("weibull"), OptimalSurvivalTree(1)])
def test_results_are_those_of_larger_blocks(
    estimator: SoftSurvivalTree, gbsg2: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted, rows = estimator.fit(gbsg2.frame, (gbsg2.time, gbsg2.event)), gbsg2.subset(np.arange(200))

    def results() -> np.ndarray:
        scores = metrics.evaluate(fitted, gbsg2, rows, metrics=["c_harrell", "ibs_graf", "cd_auc"])
        return np.concatenate([scores["value"], fitted.predict(gbsg2.frame)])

    expected = results()
    monkeypatch.setenv(memory.VARIABLE, "8MiB")  # room for the curves, and for blocks of half the rows
    np.testing.assert_allclose(results(), expected, rtol=1e-12)


def test_a_limit_makes_grids_coarser_where_they_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    times = np.arange(10_000.0)
    assert thinned(times, 1000) is times
    for limit, least, most in (("40MB", 500, 512), ("2MB", 240, 250)):
        monkeypatch.setenv(memory.VARIABLE, limit)
        assert least <= thinned(times, 1000).size <= most


def test_what_memory_cannot_hold_raises_before_it_begins(
    gbsg2: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, times = SurvivalRegression("weibull"), np.linspace(1.0, 2000.0, 30_000)
    with monkeypatch.context() as patch:
        patch.setattr(memory, "free_memory", lambda: 2**27)
        for model in (tree, OptimalSurvivalTree(1)):
            model.fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
            with pytest.raises(ConfigError, match=r"686 rows at 30000 times take 0.2 GiB; 0.1 GiB are free"):
                model.predict_survival_function(gbsg2.frame, times)
            assert model.predict_survival_function(gbsg2.frame, times[:100]).shape == (686, 100)
    monkeypatch.setattr(memory, "_SMALL", 0)
    monkeypatch.setattr(memory, "resident_memory", lambda: 2**30)
    monkeypatch.setenv(memory.VARIABLE, "1025MiB")
    with pytest.raises(ConfigError, match=r"4 splits take .* which 1.0 are in use: "):
        cross_validate(tree, gbsg2, 3)
    monkeypatch.setenv(memory.VARIABLE, "1100MiB")
    tree.fit(gbsg2.frame, gbsg2.y)


def test_fits_and_predictions_of_few_rows_take_one_thread_of_torch(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, taken, set_threads = list[int](), list[int](), torch.set_num_threads
    with torch_threads(2):
        with listening(lambda *progress: seen.append(torch.get_num_threads())):
            model = SurvivalRegression("weibull").fit(small_data.frame, small_data.y)
        assert set(seen) == {1}
        with threads_for(FEW):
            assert torch.get_num_threads() == 2
        monkeypatch.setattr(torch, "set_num_threads", lambda n: (taken.append(n), set_threads(n)))
        model.predict_survival_function(small_data.frame, [10.0, 20.0])
        assert taken == [1, 2]


def _blas_threads() -> set[int]:
    return {each["num_threads"] for each in ThreadpoolController().info() if each["user_api"] == "blas"}


@pytest.mark.parametrize("estimator", [SurvivalRegression(), PrognosticTree()])
def test_linear_algebra_of_a_fit_takes_one_thread(
    estimator: Any, gbsg2: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[set[int]] = []

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: (taken.append(_blas_threads()), function(*args, **options))[1]

    for name in ("cholesky", "eigh", "inv", "lstsq", "solve", "svd"):
        monkeypatch.setattr(np.linalg, name, watched(getattr(np.linalg, name)))
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        with listening(lambda *progress: taken.append(_blas_threads())):
            estimator.fit(gbsg2.frame, gbsg2.y)
        assert len(taken) > 5
        assert set.union(*taken) == {1}  # they were 2, or as many as there are cores
        assert _blas_threads() == {2}


def test_number_of_blas_threads_is_restored_by_the_last_of_several_fits() -> None:
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        first, second = ExitStack(), ExitStack()
        first.enter_context(one_blas_thread())
        second.enter_context(one_blas_thread())
        first.close()  # as the fit of another thread may end first
        assert _blas_threads() == {1}
        second.close()
        assert _blas_threads() == {2}
