"""Competing causes: what y may look like, what is refused, what a subset keeps."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from sstorch import Surv, SurvivalData
from sstorch.data.outcomes import recoded
from sstorch.exceptions import ConfigError, DataError

TIME = np.array([5.0, 3.0, 8.0, 2.0, 7.0])
CODES = [0, 2, 1, 1, 0]
NAMES = {1: "relapse", 2: "death"}
X = np.arange(10.0).reshape(5, 2) ** 2


@pytest.mark.parametrize(
    ("column", "causes", "names"),
    [
        (CODES, "auto", ("1", "2")),
        (np.array(CODES, dtype=float), NAMES, ("relapse", "death")),
        (
            pd.Categorical.from_codes(CODES, ["alive", "relapse", "death"], ordered=True),
            "auto",
            ("relapse", "death"),
        ),
        (np.array(["Censored", "r", "d"])[CODES], "auto", ("d", "r")),
        (np.array(["alive", "r", "d"])[CODES], {"r": "relapse", "d": "death"}, ("relapse", "death")),
    ],
)
def test_forms_of_causes(column: object, causes: object, names: tuple[str, ...]) -> None:
    y = Surv(TIME, column, causes=causes)  # type: ignore[arg-type]
    np.testing.assert_array_equal(y.time, TIME)
    assert y.causes == names
    expected = CODES if names != ("d", "r") else [0, 1, 2, 2, 0]
    np.testing.assert_array_equal(y.cause, expected)


def test_causes_go_with_their_rows() -> None:
    data = SurvivalData(X, Surv(TIME, CODES, causes=NAMES))
    assert data.cause_names == ("relapse", "death")
    np.testing.assert_array_equal(data.event, [False, True, True, True, False])
    part = data.subset([1, 4])
    np.testing.assert_array_equal(part.cause, [2, 0])
    assert part.cause_names == data.cause_names
    assert "3 events (60.0 %: 2 relapse, 1 death)" in data.describe()
    death = data.of_cause("death")
    np.testing.assert_array_equal(death.event, [False, True, False, False, False])
    np.testing.assert_array_equal(data.of_cause(1).event, [False, False, True, True, False])
    with pytest.raises(ConfigError, match=r"cause 'infection'; the causes are 1 \(relapse\), 2 \(death\)"):
        data.of_cause("infection")
    for causes in (lambda: death.y.of_cause(1), lambda: recoded(death.y, ("a", "b"))):
        with pytest.raises(DataError, match="the data have one event; for causes give Surv"):
            causes()


WORDS = ["censored", "aspiration", "sepsis", "censored", "aspiration"]


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(WORDS, dtype="category"),  # aspiration, the first level, was censored
        pd.Series([" Censored", "aspiration ", "Sepsis", "CENSORED", "Aspiration"], dtype="category"),
        pd.Series(WORDS, dtype="string"),
        np.array(WORDS),
        pl.Series(WORDS),
        pl.Series(WORDS, dtype=pl.Categorical),
        pl.Series(WORDS, dtype=pl.Enum(["sepsis", "censored", "aspiration"])),
        pa.chunked_array([pa.array(WORDS).dictionary_encode()]),
    ],
    ids=["category", "spellings", "string", "text", "polars", "polars categories", "polars enum", "arrow"],
)
def test_the_word_censored_is_found_wherever_it_stands(column: object) -> None:
    y = Surv(TIME, column, causes="auto")
    assert y.causes is not None
    names = [None, *(name.lower() for name in y.causes)]
    assert [names[code] for code in y.cause] == [None, "aspiration", "sepsis", None, "aspiration"]


def test_zero_is_censored_in_texts_and_ordered_categories() -> None:
    assert Surv(TIME, ["0", "relapse", "death", "0", "relapse"], causes="auto").cause.tolist() == [
        0,
        2,
        1,
        0,
        2,
    ]
    column = pd.Series(pd.Categorical(["1", "0", "2", "0", "1"], ["1", "0", "2"], ordered=True))
    assert Surv(TIME, column, causes="auto").cause.tolist() == [1, 0, 2, 0, 1]  # the first level was censored


@pytest.mark.parametrize("kind", ["category", "string", "polars"])
def test_an_order_that_nobody_set_is_refused_with_the_levels(kind: str) -> None:
    words = ["alive", "relapse", "death", "alive", "relapse"]
    column = pl.Series(words, dtype=pl.Categorical) if kind == "polars" else pd.Series(words, dtype=kind)
    with pytest.raises(DataError, match=r"'alive'.*none stands for 'censored'.*causes=\{'alive'"):
        Surv(TIME, column, causes="auto")
    order = pd.CategoricalDtype(["alive", "relapse", "death"], ordered=True)
    assert Surv(TIME, pd.Series(words, dtype=order), causes="auto").cause.tolist() == [0, 1, 2, 0, 1]


def test_causes_of_text_in_any_spelling_have_a_remedy() -> None:
    words = ["Alive", "RELAPSE ", "death", "alive", "relapse"]
    y = Surv(TIME, words, causes={"relapse": "relapse", "Death": "death"})
    assert y.cause.tolist() == [0, 1, 2, 0, 1]
    assert recoded(y, ("Death", "Relapse")).cause.tolist() == [0, 2, 1, 0, 2]
