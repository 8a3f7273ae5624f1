"""The figure of competing causes."""

import numpy as np
import pytest
from matplotlib import pyplot

from sstorch import CompetingRisksTree
from sstorch.exceptions import DataError
from sstorch.metrics import aalen_johansen
from sstorch.plots import plot_incidence


def test_incidences_are_stacked_by_group() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    first, second = rng.exponential(np.exp(-x[:, 0])), rng.exponential(np.exp(-x[:, 1]))
    time = np.minimum(np.minimum(first, second), 1.5)
    cause = np.select([first <= time, second <= time], [1, 2], 0)
    causes = {1: "relapse", 2: "death"}
    tree = CompetingRisksTree(1, "exponential", causes=causes, time_unit="years").fit(x, (time, cause))
    axes = plot_incidence(tree, x, (time, cause))
    groups = np.unique(tree.apply(x))
    assert len(axes) == len(groups) == 2
    at_end = [
        float(tree.predict_cumulative_incidence(x, [1.5]).sum(axis=1)[tree.apply(x) == g].mean())
        for g in groups
    ]
    # The group with the most events comes first, and the top of its colours is the sum of its causes.
    assert axes[0].get_title().startswith(f"group {groups[np.argmax(at_end)]}")
    top = max(part.get_datalim(axes[0].transData).y1 for part in axes[0].collections)
    assert top == pytest.approx(max(at_end), rel=1e-9)
    assert axes[0].get_xlabel() == "years"
    assert [text.get_text() for text in axes[0].figure.legends[0].get_texts()] == [
        "relapse", "death", "Aalen-Johansen",
    ]  # fmt: skip
    pyplot.close(axes[0].figure)
    start, inside = (
        np.where(np.arange(len(time)) % 2, 0.5 * time, 0.0),
        tree.apply(x) == groups[np.argmax(at_end)],
    )
    axes = plot_incidence(tree, x, (time, cause), entry=start)
    seen, top = axes[0].lines[-1].get_data()
    observed = aalen_johansen(time[inside], cause[inside], seen, 2, entry=start[inside]).sum(axis=0)
    np.testing.assert_allclose(top, observed, rtol=1e-12)
    pyplot.close(axes[0].figure)
    with pytest.raises(DataError, match="one target for every row"):
        plot_incidence(tree, x[:5], (time, cause))
