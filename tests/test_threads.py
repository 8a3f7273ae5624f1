import pytest
import torch

from sstorch import SurvivalData, SurvivalRegression
from sstorch.progress import Watch
from sstorch.threads import FEW, threads_for, torch_threads


def test_fits_of_few_rows_take_one_thread_of_torch(small_data: SurvivalData) -> None:
    seen: list[int] = []
    with torch_threads(2):
        with Watch(lambda progress: seen.append(torch.get_num_threads())):
            SurvivalRegression("weibull").fit(small_data.frame, small_data.y)
        assert set(seen) == {1}
        with threads_for(FEW):
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 2


def test_predictions_of_few_rows_take_one_thread_of_torch(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = SurvivalRegression("weibull").fit(small_data.frame, small_data.y)
    taken: list[int] = []
    set_threads = torch.set_num_threads
    with torch_threads(2):
        monkeypatch.setattr(torch, "set_num_threads", lambda n: (taken.append(n), set_threads(n)))
        model.predict_survival_function(small_data.frame, [10.0, 20.0])
        assert taken == [1, 2]
