"""Figure of model checks."""

import pytest
from matplotlib import pyplot

from sstorch import Columns, Penalties, SurvivalRegression, load_dataset
from sstorch.exceptions import ConfigError
from sstorch.plots import plot_check
from sstorch.validation import check

DATA = load_dataset("gbsg2")


def test_ratios_and_labels_of_influential_rows_are_drawn() -> None:
    model = SurvivalRegression("weibull", penalties=Penalties(ridge=0), columns=Columns(numeric="linear"))
    found = check(model.fit(DATA.frame, DATA.y), DATA.frame, DATA.y)
    left, right, last = plot_check(found.risk_groups, found.influence, found.effects).axes
    assert left.lines[0].get_ydata() == pytest.approx(found.risk_groups["ratio"].to_numpy())
    widths = [bar.get_width() for bar in right.patches]  # type: ignore[attr-defined]
    assert abs(widths[-1]) == max(map(abs, widths)) == found.influence["change"].abs().max()
    assert right.texts[-1].get_text().strip() == "115"
    with pytest.raises(ConfigError, match="cause must be one of event, got 'death'"):
        plot_check(found.risk_groups, found.influence, found.effects, "death")
    names = [text.get_text() for text in last.get_legend().get_texts()]  # type: ignore[union-attr]
    assert len(names) == 3
    assert set(names) <= set(found.effects.index.get_level_values("feature"))
    pyplot.close("all")
