"""Encodings of numeric columns: what they are, where their knots come from, and what is refused."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from scipy.interpolate import CubicSpline

from sstorch.data import Preprocessor, Schema
from sstorch.data.basis import BasisModule
from sstorch.data.encodings import (
    ColumnEncodings,
    Encodings,
    Linear,
    Log,
    NaturalSpline,
    NumericEncoding,
    Piecewise,
    Smooth,
    make_encoding,
    parse_interactions,
    parse_monotone,
)
from sstorch.exceptions import ConfigError
from sstorch.packing import pack, unpack

RNG = np.random.default_rng(3)
FRAME = pd.DataFrame(
    {
        "age": RNG.uniform(20, 80, 200).round(1),
        "nodes": RNG.lognormal(1.5, 1.0, 200).round(),
        "sex": RNG.choice(["f", "m"], 200),
        "flag": RNG.uniform(size=200) < 0.5,
    }
)
ALL = (Linear(), Log(), Piecewise(), Piecewise(8), NaturalSpline(), NaturalSpline(6), Smooth(), Smooth(3))


def encoded(encodings: Encodings, frame: pd.DataFrame = FRAME) -> Preprocessor:
    return Preprocessor(Schema.of(FRAME), encodings=encodings).fit(frame)


def leaves(encoding: NumericEncoding | dict, **options: object) -> Preprocessor:
    """Leaves and gates see the same."""
    columns = ColumnEncodings.of(encoding)
    return encoded(Encodings(columns, columns, **options))


def column_of(preprocessor: Preprocessor, frame: pd.DataFrame, name: str) -> np.ndarray:
    """Features made of a column."""
    chosen = [k for k, feature in enumerate(preprocessor.features) if feature.columns == (name,)]
    return preprocessor.transform(frame)[:, chosen]


def rows(name: str, values: np.ndarray) -> pd.DataFrame:
    """Rows that differ in one column."""
    return pd.DataFrame({"age": 1.0, "nodes": 1.0, "sex": "f", "flag": True} | {name: values})


def test_text_and_objects_are_one() -> None:
    texts = {"piecewise": Piecewise(4), " spline( 6 ) ": NaturalSpline(6), "smooth:3": Smooth(3)}
    for text, encoding in [*texts.items(), *((str(each), each) for each in ALL)]:
        assert make_encoding(text) == make_encoding(encoding) == encoding
    by_column = ColumnEncodings.of({"b": "spline", "a": Piecewise(8)})
    assert (by_column["a"], by_column["c"]) == (Piecewise(8), Linear())
    assert str(by_column) == "a=piecewise(8), b=spline(4)"
    assert ColumnEncodings.of("linear").is_linear
    assert not by_column.is_linear
    assert parse_interactions("all") == "all"


COLUMNS = ColumnEncodings.of
WRONG: list[tuple[Callable[[Any], object], str, list[Any]]] = [
    (make_encoding, "numeric must be one of", ["cubic", "log(3)", "spline()", 4]),
    (make_encoding, "must be at least", ["piecewise(1)", "spline(1)", "smooth(2)"]),
    (parse_interactions, "pair", ["age", [("age",)], [("age", "age")], [("age", "sex"), ("sex", "age")], 3]),
    (parse_monotone, "must be a dictionary", ["age", {"age": "higher"}, {3: "up"}]),
]
WRONG += [
    (lambda options: Preprocessor(Schema.of(FRAME), encodings=Encodings(**options)), words, [options])
    for options, words in (
        ({"leaves": COLUMNS({"agee": "log"})}, "numeric names 'agee'"),
        ({"gates": COLUMNS({"agee": "log"})}, "gate_numeric names 'agee'"),
        ({"leaves": COLUMNS({"sex": "spline"})}, "'sex' is categorical"),
        ({"interactions": (("age", "six"),)}, "interactions names 'six'"),
        ({"monotone": (("six", "up"),)}, "monotone names 'six'"),
        ({"monotone": (("sex", "up"),)}, "'sex' is categorical"),
        ({"leaves": COLUMNS("spline"), "monotone": (("age", "up"),)}, "use 'piecewise'"),
        ({"leaves": COLUMNS("smooth"), "monotone": (("age", "up"),)}, "use 'piecewise'"),
        ({"interactions": (("age", "sex"),), "monotone": (("age", "up"),)}, "has interactions"),
        ({"interactions": "all", "monotone": (("age", "up"),)}, "has interactions"),
    )
]


@pytest.mark.parametrize(("make", "words", "values"), WRONG)
def test_encodings_that_do_not_exist_raise(make: Any, words: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=words):
            make(value)


def test_a_broken_line_is_that_of_its_quantiles() -> None:
    """The features and a constant span all continuous lines with these bends, and nothing else."""
    preprocessor = leaves(Piecewise(4))
    age = np.linspace(0, 100, 77)
    made = column_of(preprocessor, rows("age", age), "age")
    knots = np.quantile(FRAME["age"], [0.25, 0.5, 0.75])
    both = np.column_stack([np.ones(77), age, np.maximum(age[:, None] - knots, 0), made])
    assert np.linalg.matrix_rank(both / np.abs(both).max(0), tol=1e-9) == 5 == 1 + made.shape[1]
    # Straight beyond the outermost bends, also outside of the training range; one per deviation at a bend.
    np.testing.assert_allclose(np.diff(made[age > 80], 2, axis=0), 0, atol=1e-12)
    at = column_of(preprocessor, rows("age", np.r_[knots - 1, knots, knots + 1]), "age")[:, 1:]
    bends = (at[6:] - 2 * at[3:6] + at[:3]) * FRAME["age"].std(ddof=0)
    np.testing.assert_allclose(np.diag(bends), 1, rtol=1e-9)
    line = np.column_stack([np.ones(len(FRAME)), FRAME["age"]])
    np.testing.assert_allclose(line.T @ column_of(preprocessor, FRAME, "age")[:, 1:], 0, atol=1e-8)


def cardinal(x: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Natural cubic splines that are one at a knot and zero at the others, straight beyond the knots."""
    inside = np.clip(x, knots[0], knots[-1])
    splines = [CubicSpline(knots, row, bc_type="natural") for row in np.eye(len(knots))]
    return np.column_stack([each(inside) + each(inside, 1) * (x - inside) for each in splines])


@pytest.mark.parametrize("name", ["age", "nodes"])
@pytest.mark.parametrize("encoding", [NaturalSpline(4), NaturalSpline(6), Smooth(), Smooth(3)], ids=str)
def test_splines_are_those_of_scipy(encoding: NumericEncoding, name: str) -> None:
    preprocessor, raw = leaves(encoding), FRAME[name].to_numpy()
    logged = isinstance(encoding, Smooth) and name == "nodes"
    names = [feature.name for feature in preprocessor.features if feature.columns == (name,)]
    assert names == [f"log({name})" if logged else name, *(f"{name}~{k}" for k in range(1, len(names)))]
    away = raw - raw.min()

    def scaled(values: np.ndarray) -> np.ndarray:
        """As the curve sees the column: the logarithm of a skewed one."""
        return np.log1p((values - raw.min()) / np.median(away[away > 0])) if logged else values

    x, shares = scaled(raw), (0, 1) if isinstance(encoding, Smooth) else (0.05, 0.95)
    knots = np.unique(np.quantile(x, np.linspace(*shares, encoding.df + 1)))
    values = np.linspace(raw.min(), 2 * raw.max(), 500)
    made = column_of(preprocessor, rows(name, values), name)
    made = made[:, np.r_[True, np.abs(made[:, 1:]).max(0) > 0]]
    ours, theirs = np.column_stack([np.ones(500), made]), cardinal(scaled(values), knots)
    coefficients, *_ = np.linalg.lstsq(theirs, ours, rcond=None)
    np.testing.assert_allclose(theirs @ coefficients, ours, atol=1e-8)
    assert np.linalg.matrix_rank(ours) == theirs.shape[1] == len(knots)
    np.testing.assert_allclose(np.ptp(np.diff(made[:, 0]) / np.diff(scaled(values))), 0, atol=1e-9)
    # Squared coefficients sum to the roughness in units of the standard deviation.
    curves = column_of(preprocessor, FRAME, name)[:, 1:][:, : made.shape[1] - 1]
    slope = RNG.normal(size=curves.shape[1])
    at_knots = np.linalg.lstsq(cardinal(x, knots), curves @ slope, rcond=None)[0]
    second = CubicSpline(knots, at_knots, bc_type="natural").derivative(2)
    fine = np.linspace(knots[0], knots[-1], 100_001)
    assert trapezoid(second(fine) ** 2, fine) * x.std() ** 3 == pytest.approx(slope @ slope, rel=1e-4)
    # The nearest straight line is taken off.
    np.testing.assert_allclose(
        np.column_stack([np.ones(len(x)), x]).T @ curves / np.abs(x).sum(), 0, atol=1e-8
    )


def test_logarithms_are_of_skewed_columns_alone() -> None:
    preprocessor = leaves(Log())
    assert {"log(nodes)", "age"} <= set(preprocessor.feature_names_out)
    nodes = FRAME["nodes"].to_numpy()
    made = column_of(preprocessor, FRAME, "nodes")[:, 0]
    expected = np.log1p((nodes - nodes.min()) / (np.median(nodes[nodes > nodes.min()]) - nodes.min()))
    np.testing.assert_allclose(made, expected / expected.max(), rtol=1e-12)
    # Straight, and rising, below what was seen.
    below = column_of(preprocessor, FRAME.assign(nodes=nodes.min() - np.arange(200.0)), "nodes")[:, 0]
    np.testing.assert_allclose(np.diff(below), np.diff(below)[0], rtol=1e-9)
    assert below[1] < below[0] == 0


@pytest.mark.parametrize(
    ("values", "informative"),
    [
        ([0, 1, 2, 3] * 50, 1),  # a number of four values is itself
        ([0, 1, 2, 3, 4, 5] * 30, 1),
        ([0, 1, 2, 3, 4, 5, 6] * 30, 5),
        ([0] * 150 + list(range(1, 51)), 1),  # three quarters are zero: two knots
        ([0] * 100 + list(range(1, 101)), 3),  # half are zero: four knots
        ([5.0] * 196 + [5.1, 5.2, 5.3, 5.4], 1),
        ([*np.linspace(0, 1, 199), 1e9], 5),
        ([*np.linspace(0, 1, 199), -1e3], 5),
        ([1e-300 * k for k in range(200)], 5),
    ],
    ids=["4", "6", "7", "zeros", "half zeros", "constant", "high", "low", "tiny"],
)
def test_smooth_columns_with_ties_and_outliers_are_finite(values: list[float], informative: int) -> None:
    frame = pd.DataFrame({"x": np.asarray(values, float)})
    columns = ColumnEncodings.of("smooth")
    preprocessor = Preprocessor(Schema.of(frame), encodings=Encodings(columns, columns)).fit(frame)
    assert preprocessor.basis_.informative.sum() == informative
    # Of moderate size between the training rows, too.
    unseen = pd.DataFrame({"x": np.linspace(frame["x"].min(), frame["x"].max(), 999)})
    assert np.abs(np.r_[preprocessor.transform(frame), preprocessor.transform(unseen)]).max() < 10


def test_gates_and_leaves_see_their_own() -> None:
    encodings = Encodings(
        ColumnEncodings.of({"age": "spline", "nodes": "log"}),
        ColumnEncodings.of({"age": "piecewise"}),
        (("age", "sex"),),
    )
    preprocessor = encoded(encodings)
    gates = [feature.name for feature in preprocessor.gate_features]
    assert gates == ["age~1", "age~2", "age~3", "nodes", "age", "sex=f", "sex=m", "flag"]
    of_leaves = [feature.name for feature in preprocessor.leaf_features]
    assert of_leaves == [
        *["age", "sex=f", "sex=m", "flag"],
        *["age~1", "age~2", "age~3", "log(nodes)", "age:sex=f", "age:sex=m"],
    ]
    width = len(preprocessor.features)
    assert preprocessor.basis_.n_gates + preprocessor.basis_.n_leaves == width + 4


def test_all_interactions_are_products_of_all_pairs_of_columns() -> None:
    frame = FRAME.assign(grade=RNG.choice(["I", "II", "III"], 200))
    frame.loc[(frame["sex"] == "f") & (frame["grade"] == "I"), "grade"] = "II"
    smooth = ColumnEncodings.of("smooth")
    encodings = Encodings(smooth, ColumnEncodings(), "all")
    preprocessor = Preprocessor(Schema.of(frame), encodings=encodings).fit(frame)
    made = dict(zip(preprocessor.feature_names_out, preprocessor.transform(frame).T, strict=True))
    away = frame["nodes"] - frame["nodes"].min()
    logged = np.log1p(away / away[away > 0].median())
    numbers = {"age": frame["age"], "log(nodes)": logged, "flag": frame["flag"]}
    numbers = {name: (own - own.mean()) / (own.max() * 1.0 - own.min()) for name, own in numbers.items()}
    parts = [
        {"age": numbers["age"]},
        {"log(nodes)": numbers["log(nodes)"]},
        {f"sex={word}": frame["sex"] == word for word in ("f", "m")},
        {"flag": numbers["flag"]},
        {f"grade={word}": frame["grade"] == word for word in ("I", "II", "III")},
    ]
    pairs = [(one, other, a, b) for one, other in combinations(parts, 2) for a in one for b in other]
    expected = {f"{a}:{b}": one[a] * 1.0 * other[b] for one, other, a, b in pairs}
    products = [feature for feature in preprocessor.leaf_features if feature.kind == "product"]
    assert {feature.name for feature in products} == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(made[name], values, atol=1e-13)
    # No training row has both: the product goes.
    kept = preprocessor.basis_.keep(preprocessor.basis_.informative)
    gone = set(preprocessor.feature_names_out) - {feature.name for feature in kept.features}
    assert gone == {"sex=f:grade=I", "flag~1", "flag~2", "flag~3", "flag~4"}
    made = preprocessor.transform(frame)[:, preprocessor.basis_.informative]
    np.testing.assert_allclose(kept.transform(preprocessor.scaled(frame)), made, rtol=1e-12, atol=1e-14)


def test_too_many_products_raise() -> None:
    words = [f"word {k}" for k in range(71)]
    frame = pd.DataFrame({"a": words, "b": words})
    with pytest.raises(ConfigError, match="5,041 products"):
        Preprocessor(Schema.of(frame), encodings=Encodings(interactions="all"))
    Preprocessor(Schema.of(frame[:70]), encodings=Encodings(interactions="all"))


@given(seed=st.integers(0, 2**32 - 1), encoding=st.sampled_from(ALL), data=st.data())
def test_saved_alike_and_torch_alike(seed: int, encoding: NumericEncoding, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    count = data.draw(st.sampled_from([1, 3, 7, 60]))
    frame = pd.DataFrame(
        {
            "age": rng.choice([1.0, 2.0, 5.0, np.nan, *rng.normal(size=3)], count),
            "nodes": rng.lognormal(sigma=2, size=count).round(data.draw(st.integers(0, 3))),
            "sex": rng.choice(["f", "m"], count),
            "flag": rng.uniform(size=count) < 0.5,
        }
    )
    frame.loc[0, "age"] = 3.0
    interactions = data.draw(st.sampled_from([(("age", "sex"),), "all"]))
    encodings = Encodings(ColumnEncodings.of(encoding), ColumnEncodings(), interactions)
    preprocessor = Preprocessor(Schema.of(FRAME), encodings=encodings).fit(frame)
    other = pd.concat([frame, FRAME])
    made = preprocessor.transform(other)
    assert np.isfinite(made).all()
    again = unpack(pack(preprocessor))
    np.testing.assert_array_equal(again.transform(other), made)
    assert again.features == preprocessor.features
    if preprocessor.basis_ is not None:
        in_torch = BasisModule(preprocessor.basis_)(torch.as_tensor(preprocessor.scaled(other)))
        rounding = 1e-13 * max(1.0, np.abs(made).max())  # sums cancel from the largest feature down
        np.testing.assert_allclose(in_torch.numpy(), made, rtol=1e-13, atol=rounding)


def test_slopes_are_derivatives_in_every_piece() -> None:
    preprocessor = leaves({"age": "piecewise", "nodes": "log"})
    slopes = preprocessor.leaf_slopes("age")
    knots = np.quantile(preprocessor.scaled(FRAME)[:, 0], [0.25, 0.5, 0.75])
    z, step = np.zeros((4, 5)), 1e-3 * np.eye(5)[0]
    z[:, 0] = [(knots[0] + knots[1]) / 2, (knots[1] + knots[2]) / 2, knots[2] + 1, knots[0] - 1]
    ahead, behind = (preprocessor.basis_.transform(z + change) for change in (step, -step))
    np.testing.assert_allclose(slopes, (ahead - behind) / 2e-3, atol=1e-9)
    assert (preprocessor.leaf_slopes("nodes") != 0).sum() == 1


def test_a_column_far_out_has_splines_too() -> None:
    """Quantiles that differ by less than rounding of their range made no knots that a spline could have."""
    z = np.r_[np.linspace(0, 1e-9, 60), np.linspace(0.3, 1, 30)]
    mixing = NaturalSpline(4).curves(z).mixing
    assert 1 < mixing.shape[1] < 1 + NaturalSpline(4).n_curved
    assert np.isfinite(mixing).all()
