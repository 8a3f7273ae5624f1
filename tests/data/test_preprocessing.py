"""Schema and Preprocessor."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sstorch.data import Preprocessor, Schema
from sstorch.exceptions import DataWarning
from sstorch.packing import pack, unpack

FRAME = pd.DataFrame(
    {
        "age": [20.0, 40.0, np.nan, 60.0],
        "grade": ["II", "I", None, "II"],
        "flag": [True, False, True, True],
        "stage": pd.Categorical([3, 1, 3, None], categories=[3, 1, 2]),
    }
)


def numbers(low=-1e6, high=1e6):
    return st.none() | st.floats(low, high, allow_nan=False, width=64)


@st.composite
def frames(draw):
    words = st.sampled_from([None, "u", "v", "w"])
    rows = draw(st.lists(st.tuples(numbers(), numbers(0, 1e-300), words), min_size=1, max_size=12))
    frame = pd.DataFrame(rows, columns=list("abc")).astype({"a": float, "b": float})
    return frame.assign(c=pd.Categorical(frame["c"], categories=["w", "u", "v"]))


def test_schema():
    schema = Schema.of(FRAME)
    assert schema.columns == ("age", "grade", "flag", "stage")
    assert schema.numeric == ("age", "flag")
    assert schema.categories == {"grade": ("I", "II"), "stage": ("3", "1", "2")}
    assert schema.feature_names_out == ["age", "grade=I", "grade=II", "flag", "stage=3", "stage=1", "stage=2"]
    assert schema.origins[1:4] == [("grade", "I"), ("grade", "II"), ("flag", None)]
    assert unpack(pack(schema)) == schema


def test_encoding():
    out = Preprocessor(Schema.of(FRAME)).fit(FRAME).transform(FRAME)
    assert out.dtype == np.float64
    assert out.flags.c_contiguous
    #       age  I  II flag 3  1  2
    assert out.tolist() == [
        [0.0, 0, 1, 1, 1, 0, 0],
        [0.5, 1, 0, 0, 0, 1, 0],
        [0.5, 0, 0, 1, 1, 0, 0],
        [1.0, 0, 1, 1, 0, 0, 0],
    ]


@pytest.mark.parametrize("values", [[3.0] * 3, [0.1 + 0.2, 0.3, 0.3], [0.0, 5e-324, 0.0], [1e9, 1e9, np.nan]])
def test_constant_columns_become_zero(values):
    frame = pd.DataFrame({"x": values})
    prep = Preprocessor(Schema.of(frame)).fit(frame)
    assert prep.scale_.tolist() == [0.0]
    assert not prep.transform(pd.DataFrame({"x": [7.0, -1e50]})).any()


def test_categories_unseen_in_training_are_zero_and_unknown_ones_are_said():
    prep = Preprocessor(Schema.of(FRAME)).fit(FRAME.iloc[[0, 3]])
    out = prep.transform(FRAME)
    assert (prep.feature_names_out[1], prep.scale_[1]) == ("grade=I", 0.0)
    assert out[:, 1:3].tolist() == [[0, 1], [0, 0], [0, 0], [0, 1]]
    prep.fit(FRAME)
    with pytest.warns(DataWarning, match=r"'grade' .* category 'IV' in 1 row .*0-based position 2"):
        out = prep.transform(FRAME.assign(grade=["I", "II", "IV", None]))
    assert out[:, 1:3].tolist() == [[1, 0], [0, 1], [0, 0], [0, 0]]


def test_categories_are_compared_as_text():
    schema = Schema.of(pd.DataFrame({"c": ["1", "2", "x"]}))
    prep = Preprocessor(schema).fit(pd.DataFrame({"c": ["1", "2", "x"]}))
    for values in ([1, 2], [1.0, 2.0], ["1", "2"], pd.Categorical([1, 2])):
        assert prep.transform(pd.DataFrame({"c": values})).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert prep.transform(pd.DataFrame({"c": [1.0, np.nan]})).tolist() == [[1, 0, 0], [0, 0, 0]]


def test_row_alone_is_as_in_the_table_even_when_all_missing():
    prep = Preprocessor(Schema.of(FRAME)).fit(FRAME)
    whole = prep.transform(FRAME)
    for i in range(len(FRAME)):
        np.testing.assert_array_equal(prep.transform(FRAME.iloc[[i]]), whole[[i]])
    assert prep.transform(FRAME.iloc[:0]).shape == (0, 7)
    empty = pd.DataFrame({name: [None] for name in FRAME.columns})
    assert prep.transform(empty).tolist() == [[0.5, 0, 0, 0.75, 0, 0, 0]]


@pytest.mark.filterwarnings("ignore:column .* is missing in every training row")
@given(train=frames(), test=frames())
def test_round_trip_is_bit_identical(train, test):
    prep = Preprocessor(Schema.of(train)).fit(train)
    again = unpack(pack(prep))
    for frame in (train, test):
        out = prep.transform(frame)
        assert np.isfinite(out).all()
        assert out.tobytes() == again.transform(frame).tobytes()
    out = prep.transform(train)
    assert out.min() >= 0
    assert out.max() <= 1


@pytest.mark.parametrize("n", [40, 41])
def test_integer_weights_fill_as_repeated_rows(n):
    rng = np.random.default_rng(n)
    frame = pd.DataFrame({"x": rng.normal(size=n), "g": rng.choice(list("abc"), n)})
    frame = frame.where(rng.random((n, 2)) > 0.2)
    weight = rng.integers(1, 9, n)
    repeated = frame.loc[np.repeat(frame.index, weight)]
    schema = Schema.of(frame)
    for scale in (1.0, 0.7):  # only ratios matter
        one = Preprocessor(schema).fit(frame, scale * weight)
        many = Preprocessor(schema).fit(repeated)
        assert one.fill_["x"] == pytest.approx(many.fill_["x"], rel=1e-12)
        assert one.mode_ == many.mode_
