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
