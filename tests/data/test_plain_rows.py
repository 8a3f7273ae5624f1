"""Few rows that are encoded without pandas: the same numbers, and never where something has to be said."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sstorch import Columns, PrognosticTree
from sstorch.data import Preprocessor, Schema
from sstorch.data.plain_rows import PlainRows

DRAWS = np.random.default_rng(3)
TRAINING = pd.DataFrame(
    {
        "age": DRAWS.normal(60, 9, 80),
        "nodes": DRAWS.integers(0, 30, 80),
        "constant": 2.0,
        "menopause": DRAWS.choice([True, False], 80),
        "grade": DRAWS.choice(["I", "II", "III"], 80),
        "site": pd.Categorical(DRAWS.choice(["a", "b"], 80), categories=["b", "a", "c"]),
    }
)
PLAIN = Preprocessor(Schema.of(TRAINING)).fit(TRAINING)
SPLINES = PrognosticTree(columns=Columns(numeric="spline(4)"))._batch_settings().encodings
CURVED = Preprocessor(Schema.of(TRAINING), encodings=SPLINES).fit(TRAINING)

cells = st.fixed_dictionaries(
    {
        "age": st.one_of(st.floats(30, 90), st.sampled_from([np.nan, -500.0, 1e101, np.inf, 60])),
        "nodes": st.one_of(st.integers(0, 30), st.sampled_from([np.nan, 4000, 3.5])),
        "constant": st.sampled_from([2.0, 7.0, 1e120]),
        "menopause": st.sampled_from([True, False, 1, 0.0]),
        "grade": st.sampled_from(["I", "II", "III", "III", "IV", None, np.nan, 1]),
        "site": st.sampled_from(["a", "b", "c", "d"]),
    }
)


def _slow(preprocessor: Preprocessor, frame: pd.DataFrame) -> tuple[np.ndarray | None, bool]:
    """What the general path makes of rows, and whether it has something to say."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            values = preprocessor.transform(frame)
            preprocessor.warn_of_far_values(frame)
        except ValueError:
            return None, True
    return values, bool(said)


@pytest.mark.parametrize("preprocessor", [PLAIN, CURVED], ids=["plain", "curved"])
@given(rows=st.lists(cells, min_size=1, max_size=3), dtype=st.sampled_from([None, "category", "string"]))
def test_the_same_bits_or_the_general_path(
    preprocessor: Preprocessor, rows: list[dict[str, object]], dtype: str | None
) -> None:
    frame = pd.DataFrame(rows)[[*reversed(TRAINING.columns)]].assign(other="x")
    if dtype is not None:
        frame["site"] = frame["site"].astype(dtype)
    found = PlainRows(preprocessor).transform(frame)
    expected, speaks = _slow(preprocessor, frame)
    if found is None:
        plain = frame["grade"].map(lambda cell: isinstance(cell, str)).all()
        numeric = all(frame[name].dtype != object for name in ("age", "nodes", "menopause"))
        assert speaks or not plain or not numeric
    else:
        assert not speaks
        assert expected is not None
        np.testing.assert_array_equal(found, expected, strict=True)


def test_arrays_are_encoded_alike() -> None:
    table = DRAWS.normal(size=(40, 3))
    preprocessor = Preprocessor(Schema.of(table)).fit(table)
    few = table[:4].copy()
    few[1, 2] = np.nan
    for rows in (few, few.astype(np.float32), np.round(few[:1]).astype(int)):
        found = PlainRows(preprocessor).transform(rows)
        np.testing.assert_array_equal(found, preprocessor.transform(rows), strict=True)


@pytest.mark.parametrize(
    "rows",
    [
        TRAINING,
        TRAINING[:0],
        TRAINING[:2].drop(columns="age"),
        pd.concat([TRAINING[:2], TRAINING[["age"]][:2]], axis=1),
        TRAINING[:2].astype({"age": "category"}),
        TRAINING[:2].astype({"age": "object"}),
        TRAINING[:2].astype({"age": "Float64"}),
        TRAINING[:2].assign(age=pd.Timestamp("2020-01-01")),
        TRAINING[:2].to_numpy(),
        np.zeros((2, 6)),
        [[1.0]],
    ],
)
def test_other_rows_take_the_general_path(rows: object) -> None:
    assert PlainRows(PLAIN).transform(rows) is None


def test_many_levels_take_the_general_path() -> None:
    frame = pd.DataFrame({"centre": [f"c{k}" for k in range(20)]})
    assert PlainRows(Preprocessor(Schema.of(frame)).fit(frame)).transform(frame[:1]) is None


def test_an_estimator_predicts_a_plain_row_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    frame, numbers = TRAINING[["age", "grade"]], TRAINING[["age", "nodes"]].to_numpy()
    y = DRAWS.exponential(size=80) + 0.1, DRAWS.random(80) < 0.7
    for X in (frame, numbers):
        tree = PrognosticTree(depth=1, leaf="weibull").fit(X, y)
        expected = tree.predict_survival_function(X, [0.5, 1.0])[:2]
        with monkeypatch.context() as patch:
            patch.delattr(Schema, "frame_of")
            np.testing.assert_array_equal(tree.predict_survival_function(X[:2], [0.5, 1.0]), expected)
