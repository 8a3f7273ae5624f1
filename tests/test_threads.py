from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import ThreadpoolController

from sstorch import PrognosticTree, SurvivalData, SurvivalRegression
from sstorch.threads import FEW, listening, one_blas_thread, threads_for, torch_threads


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
