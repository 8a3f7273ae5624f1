"""The figure of competing causes."""

import numpy as np
import pytest
from matplotlib import pyplot

from sstorch import PrognosticTree, Surv
from sstorch.exceptions import DataError
from sstorch.metrics import aalen_johansen
from sstorch.plots import plot_groups


def test_incidences_are_stacked_by_group() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    first, second = rng.exponential(np.exp(-x[:, 0])), rng.exponential(np.exp(-x[:, 1]))
    time = np.minimum(np.minimum(first, second), 1.5)
    cause = np.select([first <= time, second <= time], [1, 2], 0)
    causes = {1: "relapse", 2: "death"}
    y = Surv(time, cause, causes=causes)
    tree = PrognosticTree(depth=1, leaf="exponential", time_unit="years").fit(x, y)
    axes = plot_groups(tree, x, y)
    groups = np.unique(tree.apply(x))
    assert len(axes) == len(groups) == 2
    at_end = [
        float(tree.predict_cumulative_incidence(x, [1.5]).sum(axis=1)[tree.apply(x) == g].mean())
        for g in groups
    ]
    # The group with the most events comes last, and the top of its colours is the sum of its causes.
    assert [ax.get_title().split(":")[0] for ax in axes] == ["group 1", "group 2"]
    for ax, end in zip(axes, sorted(at_end), strict=True):
        top = max(part.get_datalim(ax.transData).y1 for part in ax.collections)
        assert top == pytest.approx(end, rel=1e-9)
    assert axes[0].get_xlabel() == "time (years)"
    assert [text.get_text() for text in axes[0].figure.legends[0].get_texts()] == [
        "relapse, model", "death, model", "Aalen-Johansen",
    ]  # fmt: skip
    pyplot.close(axes[0].figure)
    start, inside = (
        np.where(np.arange(len(time)) % 2, 0.5 * time, 0.0),
        tree.apply(x) == groups[np.argmax(at_end)],
    )
    axes = plot_groups(tree, x, Surv(time, cause, entry=start, causes=causes))
    seen, top = axes[1].lines[-1].get_data()
    observed = aalen_johansen(
        Surv(time[inside], cause[inside], causes="auto", entry=start[inside]), seen, n_causes=2
    ).sum(axis=0)
    np.testing.assert_allclose(top, observed, rtol=1e-12)
    pyplot.close(axes[0].figure)
    with pytest.raises(DataError, match="one target for every row"):
        plot_groups(tree, x[:5], y)


def test_weights_enter_colours_and_lines() -> None:
    rng = np.random.default_rng(1)
    x, time = rng.normal(size=(120, 2)), rng.exponential(1, 120)
    cause, weight = rng.integers(0, 3, 120), np.where(rng.random(120) < 0.2, 0.0, rng.lognormal(0, 1, 120))
    y = Surv(time, cause, causes="auto", weight=weight)
    tree = PrognosticTree(depth=1, leaf="exponential").fit(x, y)
    for axes in (
        plot_groups(tree, x, y),
        plot_groups(tree, x, Surv(time, cause, causes="auto"), sample_weight=weight / weight.sum()),
    ):
        group = int(axes[0].get_title().split()[1].rstrip(":"))
        inside = (tree.apply(x) == group) & (weight > 0)
        seen, top = axes[0].lines[-1].get_data()
        options = {"n_causes": 2, "sample_weight": weight[inside]}
        observed = aalen_johansen((time[inside], cause[inside]), seen, **options).sum(axis=0)
        np.testing.assert_allclose(top, observed, rtol=1e-10)
        end = axes[0].get_xlim()[1]
        predicted = tree.predict_cumulative_incidence(x[inside], [end]).sum(axis=1)[:, 0]
        highest = max(part.get_datalim(axes[0].transData).y1 for part in axes[0].collections)
        assert highest == pytest.approx(np.average(predicted, weights=weight[inside]), rel=1e-9)
        pyplot.close(axes[0].figure)
