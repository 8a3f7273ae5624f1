import numpy as np
import pytest

from sstorch import OptimalSurvivalTree, Search, SurvivalData
from sstorch.bench import make_baseline
from sstorch.data import Schema


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("surtree", {"objective": "log_likelihood"}),
        ("osst", {"objective": "integrated_brier", "search": Search(n_buckets=50)}),
    ],
)
def test_is_the_optimal_tree_of_the_objective(gbsg2: SurvivalData, name: str, settings: dict) -> None:
    fitted = make_baseline(name, depth=2).fit(gbsg2, Schema.of(gbsg2.frame))
    own = OptimalSurvivalTree(max_depth=2, min_leaf=20, **settings).fit(
        gbsg2.frame, (gbsg2.time, gbsg2.event)
    )
    times = [365.0, 1000.0]
    np.testing.assert_array_equal(
        fitted.falling_curves(gbsg2.frame, times), own.falling_curves(gbsg2.frame, times)
    )
