import numpy as np
import pandas as pd

from sstorch import SoftSurvivalTree, SurvivalData
from sstorch.optim import Nodec
from sstorch.plots import plot_curves_by_rho, plot_parity_by_rho, plot_scores_by_rho

RHOS = [0.0, 1.0, 5.0]
SCORES = pd.DataFrame(
    [
        {"part": part, "rho": rho, "fold": fold, "gini": 0.5 + 0.1 * k, "gini_weighted": 0.6 + 0.1 * k}
        | {"parity": 3.0 / (k + 1) + fold, "c_harrell": 0.7 - 0.01 * k, "ibs_graf": 0.2}
        for part in ("train", "test")
        for k, rho in enumerate(RHOS)
        for fold in (0, 1)
    ]
)


def test_gini_and_penalty_by_rho() -> None:
    figure = plot_parity_by_rho(SCORES, unit="weeks")
    left = [ax for ax in figure.axes if ax.get_gid() != "penalty"]
    right = [ax for ax in figure.axes if ax.get_gid() == "penalty"]
    assert [ax.get_title() for ax in left] == ["train", "test"]
    for ax in left:
        np.testing.assert_allclose(
            [line.get_ydata() for line in ax.lines], [[0.5, 0.6, 0.7], [0.6, 0.7, 0.8]]
        )
        assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "1", "5"]
    for ax in right:
        np.testing.assert_allclose(ax.lines[0].get_ydata(), [3.5, 2.0, 1.5])
    assert "weeks" in right[1].get_ylabel()


def test_scores_by_rho() -> None:
    figure = plot_scores_by_rho(SCORES, ("c_harrell", "ibs_graf"))
    left = [ax for ax in figure.axes if ax.get_gid() != "penalty"]
    assert len(left) == 4
    assert len(figure.axes) == 8
    np.testing.assert_allclose(left[1].lines[0].get_ydata(), [0.7, 0.69, 0.68])


def test_curves_by_rho(small_data: SurvivalData) -> None:
    tree = SoftSurvivalTree(depth=1, trainer=Nodec(macro_iterations=1), init="kmeans", n_starts=2)
    tree.fit(small_data.frame, (small_data.time, small_data.event))
    parts = {"train": small_data.subset(range(70)), "test": small_data.subset(range(70, 120))}
    figure = plot_curves_by_rho({"rho = 0": tree, "rho = 1": tree}, parts, unit="days")
    assert [ax.get_title() for ax in figure.axes] == [f"rho = {r}, {p}" for r in (0, 1) for p in parts]
    n_leaves = [len(np.unique(tree.apply(rows.frame))) for rows in parts.values()]
    assert [len(ax.lines) for ax in figure.axes[:2]] == [70 + n_leaves[0], 50 + n_leaves[1]]
    assert figure.axes[2].get_xlabel() == "days"
