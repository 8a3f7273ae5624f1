"""The search among encodings of numeric columns: what is compared, what goes on, and what knots come from."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from sstorch import Columns, Penalties, PrognosticTreeCV, SurvivalData, SurvivalRegression
from sstorch.bench.flat import soft_search
from sstorch.data import Schema, stratified_folds
from sstorch.data.encodings import Log, NaturalSpline, Piecewise
from sstorch.exceptions import ConfigError
from sstorch.optim import Joint, LBFGSOptions
from sstorch.soft.search import FoldSearch

SMALL: dict[str, Any] = {
    "depth": (0, 1),
    "leaf": "weibull",
    "ridge": 1e-3,
    "gate_ridge": 1e-3,
    "n_starts": 1,
    "cv": 2,
    "scoring": "log_likelihood",
    "trainer": Joint(LBFGSOptions(max_iterations=8)),
    "numeric": ("linear", "spline(3)"),
    "roughness": (1e-2, 1e-1),
}


def _search(**parameters: object) -> PrognosticTreeCV:
    return soft_search(**SMALL | parameters)


def _encodings(search: PrognosticTreeCV, data: SurvivalData | None = None) -> list[tuple[str, float]]:
    return [(str(own.numeric), own.roughness) for own in search.candidates(data)]


def test_automatic_encodings_have_curves_where_there_are_events(small_data: SurvivalData) -> None:
    search = _search(depth=0, numeric="auto", roughness=0.1)
    straight = ["linear", "log"]
    curved = [*straight, "piecewise(4)", "spline(4)"]
    many = small_data.subset(np.r_[np.arange(120), np.arange(120)])
    events = np.flatnonzero(many.event)
    for rows, names in (
        (small_data, straight),  # of 80 events
        (many.subset(events[:99]), straight),
        (many.subset(events[:100]), curved),
        (None, curved),  # as where the settings of a study are compared: all that it may be
    ):
        assert [name for name, _ in _encodings(search, rows)] == names
    assert PrognosticTreeCV().columns.numeric == "auto"


def test_roughness_is_compared_for_curves_alone() -> None:
    some = {"age": "spline", "size": Log()}
    found = _encodings(_search(depth=0, numeric=["linear", "log", Piecewise(3), some]))
    text = "age=spline(4), size=log"
    curves = [(name, value) for name in ("piecewise(3)", text) for value in (1e-2, 1e-1)]
    assert found == [("linear", 0.0), ("log", 0.0), *curves]
    # A dictionary is one value, and so is an encoding.
    assert _encodings(_search(depth=0, numeric=some, roughness=1.0)) == [(text, 1.0)]
    assert _encodings(_search(depth=0, numeric=Log())) == [("log", 0.0)]
    both = _search(ridge=(1e-3, 1e-2)).candidates()
    assert len(both) == len(set(both)) == 2 * 2 * (1 + 2)
    assert len({own.batch for own in both}) == 2 * 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"numeric": ("spline", "spline(4)")}, "numeric must be a value, or different ones"),
        ({"numeric": ()}, "numeric must be a value, or different ones"),
        ({"numeric": ("auto", "linear")}, "numeric must be one of linear, log, piecewise, spline"),
        ({"numeric": {"age": "curved"}}, "numeric of 'age' must be one of"),
        ({"roughness": (0.1, -1.0)}, "roughness must be a finite number >= 0"),
        ({"gate_numeric": "curved"}, "gate_numeric must be one of"),
    ],
)
def test_what_does_not_exist_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _search(**values).candidates()


def test_growing_keeps_encodings_and_roughness_of_each_leaf(
    small_data: SurvivalData, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = _search(depth=(0, 1, 2), leaf=("weibull", "exponential"), numeric=("linear", "log", "spline"))
    # The best at depth 0, and at all others, were these compared; each depth is better than the one before.
    favourite = {"weibull": ("spline(4)", 1e-1), "exponential": ("log", 0.0)}
    levels: dict[int, set[tuple[object, ...]]] = {}

    def scores(_: FoldSearch, level: list[Any]) -> tuple[Any, ...]:
        levels[level[0].depth] = {(own.leaf, str(own.numeric), own.roughness) for own in level}
        values = [
            own.depth + 0.5 * (((str(own.numeric), own.roughness) == favourite[own.leaf]) == (own.depth == 0))
            for own in level
        ]
        folds = np.repeat(np.array(values)[:, None], 2, axis=1)
        return np.stack([folds, folds, folds]), np.zeros(len(level)), [[]] * len(level)

    monkeypatch.setattr(FoldSearch, "_scores", scores)
    folds, schema = stratified_folds(small_data.event, 2, 0), Schema.of(small_data.frame)
    FoldSearch(search.estimator, small_data, folds, schema, "c_harrell").growing(search.candidates())
    assert len(levels[0]) == 2 * (2 + 2)
    assert levels[1] == levels[2] == {(leaf, *own) for leaf, own in favourite.items()}


def test_knots_of_a_fold_never_see_the_rows_left_out(small_data: SurvivalData) -> None:
    """Wild numbers in held-out rows: knots and trees of the fold are the same, bit for bit."""
    folds, found = stratified_folds(small_data.event, 3, 0), []
    for wild in (False, True):
        frame = small_data.frame.copy()
        if wild:
            frame.loc[folds == 1, "x0"] = np.linspace(-1e6, 1e9, (folds == 1).sum())
        data = SurvivalData(frame, (small_data.time, small_data.event))
        search = FoldSearch(_search().estimator, data, folds, Schema.of(frame), "log_likelihood")
        compared = [own for own in _search().candidates() if own.depth == 1 and own.numeric.is_curved]
        found.append(search.train(compared))
    before, after = found
    assert len(before.coefficients) == 2
    one, other = (batch.preprocessors[1].to_dict() for batch in found)
    assert one == other
    own = slice(2, 4)
    for name, value in before.tree.state_dict().items():
        assert torch.equal(value[own], after.tree.state_dict()[name][own]), name
    # The other folds were trained on these numbers.
    assert before.preprocessors[0].to_dict() != after.preprocessors[0].to_dict()
    assert not torch.equal(before.criterion[:2], after.criterion[:2])


def test_the_chosen_encodings_make_the_tree(small_data: SurvivalData) -> None:
    y = small_data.time, small_data.event
    found = _search(numeric=({"x0": "spline"}, {"x1": Piecewise(3)}), search="grid").fit(small_data.frame, y)
    table = found.cv_results_
    assert set(table["numeric"]) == {"x0=spline(4)", "x1=piecewise(3)"}
    assert found.best_params_["numeric"] in ({"x0": "spline(4)"}, {"x1": "piecewise(3)"})
    # Those that roughness holds back at depth 0, in one batch for each encoding, are those of a fit alone.
    single = table["depth"] == 0
    assert table.loc[single, "seconds"].nunique() == 2
    alone = clone(found.best_estimator_).fit(small_data.frame, y)
    np.testing.assert_array_equal(found.predict(small_data.frame), alone.predict(small_data.frame))
    train, test = (small_data.subset(found.folds_ == fold) for fold in (1, 0))
    for number in np.flatnonzero(single):
        row = table.loc[number]
        name, text = row["numeric"].split("=")
        tree = SurvivalRegression(
            "weibull",
            Penalties(ridge=1e-3, roughness=row["roughness"]),
            Columns(numeric={name: text}),
        )._fit_data(train)
        score = tree.log_likelihood(test.frame, (test.time, test.event))
        assert row["fold_0"] == pytest.approx(score, abs=1e-6)


def test_a_column_far_out_has_splines_too() -> None:
    """Quantiles that differ by less than rounding of their range made no knots that a spline could have."""
    z = np.r_[np.linspace(0, 1e-9, 60), np.linspace(0.3, 1, 30)]
    _, curves = NaturalSpline(4).functions(z)
    assert 0 < len(curves) < NaturalSpline(4).n_curved
    parts = [value for curve in curves for *_, value in curve.cubes]
    assert np.isfinite(parts).all()


def test_all_trees_share_what_gates_see_and_interactions(small_data: SurvivalData) -> None:
    search = _search(depth=1, gate_numeric="log", interactions=[("x0", "x1")])
    tree = search.fit(small_data.frame, (small_data.time, small_data.event)).best_estimator_
    assert (tree.columns.gate_numeric, tree.columns.interactions) == ("log", [("x0", "x1")])
    assert "x0:x1" in [feature.name for feature in tree.preprocessor_.leaf_features]
    again = clone(search)
    assert again.get_params()["columns__numeric"] == SMALL["numeric"]
    assert again.get_params()["columns__interactions"] == [("x0", "x1")]


@pytest.mark.parametrize("numeric", ["spline(3)", {"x0": "spline(3)", "x2": "log"}])
def test_a_saved_search_keeps_its_encodings(
    small_data: SurvivalData, tmp_path: Path, numeric: object
) -> None:
    found = _search(numeric=numeric).fit(small_data.frame, (small_data.time, small_data.event))
    found.save(tmp_path / "search")
    again = PrognosticTreeCV.load(tmp_path / "search")
    pd.testing.assert_frame_equal(again.cv_results_, found.cv_results_)
    assert again.best_params_ | {"leaf": "weibull"} == found.best_params_
    assert again.best_params_["numeric"] == again.best_estimator_.columns.numeric == numeric
    assert again.summary() == found.summary()
    np.testing.assert_array_equal(again.predict(small_data.frame), found.predict(small_data.frame))


def test_straight_lines_are_simpler_than_logarithms_and_these_than_curves() -> None:
    numeric = ("spline", "log", "linear", "piecewise")
    listed = _search(leaf=("weibull", "exponential"), numeric=numeric).candidates()
    ordered = sorted(listed, key=lambda own: own.simplicity)
    told = [(own.depth, str(own.numeric), own.leaf, own.roughness) for own in ordered]
    leaves = ("weibull", "exponential")
    assert told == [
        (depth, name, leaf, roughness)
        for depth in (0, 1)
        for name in ("linear", "log", "spline(4)", "piecewise(4)")
        for leaf in leaves
        for roughness in ((0.1, 0.01) if "(" in name else (0.0,))
    ]


def test_monotone_effects_are_of_all_trees(small_data: SurvivalData) -> None:
    search = _search(numeric="auto", monotone={"x0": "up"})
    assert {str(each.numeric) for each in search.candidates()} == {"linear", "log", "piecewise(4)"}
    tree = search.fit(small_data.frame, (small_data.time, small_data.event)).best_estimator_
    assert tree.columns.monotone == {"x0": "up"}
    slope = tree.module_.leaf(tree.module_.topology.leaves[0]).slope.detach().numpy()
    assert (tree.preprocessor_.leaf_slopes("x0") @ slope * (-1)).min() >= -1e-12
