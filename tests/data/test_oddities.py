"""A folder of odd and hostile files: each is refused, named in a warning, or accepted in silence."""

import gzip
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sstorch import PrognosticTree
from sstorch.checks import wording
from sstorch.data import Preprocessor, Schema, SurvivalData, load_file
from sstorch.data.oddities import constant_columns, few_events, odd_columns
from sstorch.exceptions import ConfigError, DataError, DataWarning

N = 60


def cohort(n: int = N, **columns: Any) -> pd.DataFrame:
    """An ordinary cohort, some columns of it given."""
    draws = np.random.default_rng(5)
    table = pd.DataFrame(
        {
            "age": draws.integers(30, 85, n),
            "marker": draws.normal(size=n).round(3),
            "sex": draws.choice(["f", "m"], n),
            "time": draws.exponential(400, n).round(1) + 1,
            "event": draws.integers(0, 2, n),
        }
    )
    return table.assign(**columns)


def some(values: object, where: dict[int, object]) -> list[object]:
    """The values as a list, a few of them replaced."""
    return [where.get(i, value) for i, value in enumerate(values)]  # type: ignore[call-overload]


COHORT = cohort()
CSV = COHORT.to_csv(index=False)
DRAWS = np.random.default_rng(11)


@dataclass
class Case:
    """What a file holds, how it is read, and what has to be said.

    ``outcome`` is refused, warned or accepted; ``lenient`` is the outcome with ``strict=False``.
    """

    content: Any
    outcome: str
    words: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    file: str = "cohort.csv"
    lenient: str | None = None

    def write(self, folder: Path) -> Path:
        path = folder / self.file
        content = self.content
        if isinstance(content, pd.DataFrame):
            content = content.to_csv(index=False)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


def refused(content: Any, *words: str, lenient: str | None = None, **options: Any) -> Case:
    """A file that is refused; a column that is refused in strict mode only has another outcome else."""
    return Case(content, "refused", words, options, lenient=lenient)


def warned(content: Any, *words: str, **options: Any) -> Case:
    return Case(content, "warned", words, options)


def accepted(content: Any, **options: Any) -> Case:
    return Case(content, "accepted", (), options)


def excel(decimal: str = ",", **columns: Any) -> str:
    """As a German Excel writes it."""
    return "\ufeff" + cohort(**columns).to_csv(index=False, sep=";", decimal=decimal, lineterminator="\r\n")


SURNAMES = [f"{a}{b}er" for a in "ABCDEFGHIJ" for b in ("al", "ol", "un", "ei", "ack", "isch")]
ODD_AGE = some(COHORT["age"], {3: -999, 9: -999})

FILES: dict[str, Case] = {
    # identifiers
    "numbered subjects": refused(
        cohort(id=np.arange(N)), "column 'id' has a different whole number", "drop=['id']", lenient="warned"
    ),
    "numbers of a register": refused(
        cohort(120, mrn=DRAWS.choice(10**8, 120, replace=False)), "'mrn'", "an identifier", lenient="warned"
    ),
    "numbered subjects, some of them twice": refused(
        pd.concat([cohort(id=np.arange(N)), cohort(id=np.arange(N))[:5]]), "'id' has 60 different values",
        lenient="warned",
    ),
    "subjects in two rows each": refused(
        cohort(120, id=np.repeat(np.arange(N), 2)), "'id' has 60 different values in 120", lenient="warned"
    ),
    "surnames": refused(
        cohort(name=SURNAMES), "column 'name' has 60 different values in 60 rows", lenient="warned"
    ),
    "surnames, some of them twice": refused(
        cohort(name=[*SURNAMES[:50], *SURNAMES[:10]]), "'name' has 50 different values", lenient="warned"
    ),
    "an identifier that is dropped": accepted(cohort(id=np.arange(N)), drop=["id"]),
    # codes for missing values
    "-999 in ages, said": accepted(cohort(age=ODD_AGE), read={"na_values": [-999]}),
    "a subject of 99": accepted(cohort(age=some(COHORT["age"], {3: 99}))),
    "unknown among numbers": refused(
        cohort(marker=some(COHORT["marker"], {3: "unknown"})), "but 'unknown' in 1 row (data row 4)",
        "read={'na_values': ['unknown']}",
    ),
    "unknown among numbers, said": accepted(
        cohort(marker=some(COHORT["marker"], {3: "unknown"})), read={"na_values": "unknown"}
    ),
    # categories
    "blanks behind a word": accepted(cohort(sex=some(COHORT["sex"], {2: "f ", 4: "m  "}))),
    "more columns than events": warned(
        cohort(600, event=[1] * 90 + [0] * 510, clinic=[f"c{i % 98}" for i in range(600)]),
        "102 columns after encoding, but 90 events",
    ),
    # columns that tell the time
    "months beside days": refused(
        cohort(months=(COHORT["time"] / 30.4).round(1)),
        "'months' orders the rows as the follow-up time does", "drop=['months']", lenient="warned",
    ),
    "years left": refused(
        cohort(left=100 - COHORT["time"] / 365), "'left' orders the rows", lenient="warned"
    ),
    "the time itself": refused(
        cohort(copy=COHORT["time"]), "'copy' equals the follow-up time", "drop=['copy']"
    ),
    # rows
    "nine events": warned(cohort(event=[1] * 9 + [0] * 51), "9 events in 60 rows: fewer than ten"),
    "all censored": refused(cohort(event=0), "all 60 rows are censored"),
    # what Excel writes
    "decimal commas": refused(excel(), "in 60 rows", "give read={'decimal': ','}"),
    "decimal commas, said": accepted(excel(), read={"decimal": ","}),
    "events in words": refused(cohort(event=["yes", "no"] * 30), "event_value='VALUE'"),
    "events in words, said": accepted(cohort(event=["yes", "no"] * 30), event_value="yes"),
    "a word for events that is not there": refused(
        cohort(event=["yes", "no"] * 30), "is 'yess' in no row", "Did you mean 'yes'?", event_value="yess"
    ),
    "competing events in words": accepted(
        cohort(event=["relapse", "death", "censored"] * 20), event_value="relapse"
    ),
    "events TRUE and FALSE": accepted(cohort(event=["TRUE", "FALSE"] * 30)),
    "events of 1 and 2": refused(cohort(event=[1, 2] * 30), "give event_value=2"),
    "a mark in front, lines of Windows": accepted(excel("."), read={"sep": ";"}),
    "dates": refused(
        cohort(seen=pd.date_range("2001-01-01", periods=N).strftime("%d.%m.%Y")), "dates written as text"
    ),
    "thousands with commas": refused(
        cohort(cost=[f"{i},{100 + 7 * i}.50" for i in range(1, N + 1)]), "give read={'thousands': ','}"
    ),
    "empty rows below": refused(CSV + ",,,,\n", "column 'time' is missing in 1 row (data row 61)"),
    "Latin-1": refused(
        CSV.replace("sex", "größe").encode("latin-1"), "give read={'encoding': 'latin-1'}"
    ),
    "two headers": refused(CSV + CSV, "'time' holds 'time', which is not a number, in 1 row (data row 61)"),
    # the rest of a bad day
    "one value only": refused(cohort(site=1), "'site' has the same value in every row", lenient="accepted"),
    "mostly missing": refused(
        cohort(rare=[1.5, 2.5] + [None] * 58), "'rare' is missing in 97% of the rows", lenient="warned"
    ),
    "a negative time, below a cell of two lines": refused(
        CSV.replace("sex", '"sex,\nas reported"').replace(f",{COHORT['time'][4]}", ",-5"),
        "column 'time' is negative in 1 row (data row 5)",
    ),
    "names with blanks and umlauts": accepted(
        CSV.replace("marker", "Größe (cm) ~ Scan").replace("time", "Überleben Tage"), time="Überleben Tage"
    ),
    "an honest file": accepted(CSV),
    "an honest file, compressed": Case(gzip.compress(CSV.encode(), mtime=0), "accepted", file="c.csv.gz"),
}  # fmt: skip


def outcome(read: Callable[[], SurvivalData]) -> tuple[str, str]:
    """Refused, warned or accepted, and what was said."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            read().warn_of_few_events()
        except (DataError, ConfigError) as error:
            return "refused", str(error)
    return ("warned" if said else "accepted"), "\n".join(str(w.message) for w in said)


@pytest.mark.parametrize("name", FILES)
def test_no_file_is_wrong_in_silence(name: str, tmp_path: Path) -> None:
    case = FILES[name]
    path = case.write(tmp_path)
    found, text = outcome(lambda: load_file(path, **case.options))
    assert (found, len(text.splitlines())) == (case.outcome, 0 if case.outcome == "accepted" else 1), text
    assert "0-based" not in text
    for word in case.words:
        assert word in text
    if case.outcome != "refused":
        return
    found, text = outcome(lambda: load_file(path, **case.options, strict=False))
    assert found == (case.lenient or "refused"), text
    if found == "warned":
        assert case.words[0] in text


def test_remedies_are_settings_where_a_command_reads(tmp_path: Path) -> None:
    cohort(**{"patient id": np.arange(N), "age": ODD_AGE}).to_csv(tmp_path / "c.csv", index=False)
    with wording(options="dataset."), pytest.raises(DataError) as refusal:
        load_file(tmp_path / "c.csv")
    for word in ("'dataset.drop=[patient id]'", "with dataset.strict=false"):
        assert word in str(refusal.value)
    with pytest.warns(DataWarning, match="column 'patient id' .* an identifier has: leave it out$"):
        SurvivalData(cohort(**{"patient id": np.arange(N)})[["patient id", "sex"]], COHORT[["time", "event"]])


def test_words_of_events_in_frames() -> None:
    data = SurvivalData.from_frame(cohort(event=COHORT["event"] == 1), event_value="true")
    assert (data.event == (COHORT["event"] == 1)).all()


def test_measurements_are_not_called_odd() -> None:
    """Numbers as they are measured: draws of many kinds, none of which may cause a word."""
    draws = np.random.default_rng(0)
    time = draws.exponential(500, 500)
    columns = {
        "normal": draws.normal(size=500),
        "counts": draws.poisson(3, 500),
        "cells": (draws.lognormal(12, 0.5, 500) / 1000).round() * 1000,
        "year": draws.integers(1984, 2000, 500),
        "risk": -np.log(time) + draws.normal(size=500),  # rank correlation about .7
        "mostly zero": np.where(draws.uniform(size=500) < 0.9, 0.0, draws.gamma(2, 50, 500)),
        "minus one": draws.choice([-1.0, 0.0, 1.0], 500),
    }
    frame = pd.DataFrame(columns).astype(float)
    event = draws.uniform(size=500) < 0.5
    assert not odd_columns(frame, time, event) + constant_columns(frame)


def test_few_events_count_the_columns_that_a_model_gets() -> None:
    frame = pd.DataFrame({"x": np.arange(30.0), "g": pd.Categorical(["a", "b", "c"] * 10, list("abcdefgh"))})
    event = np.arange(30) < 10
    assert not few_events(frame, event)  # 4 columns: categories without rows are none
    assert few_events(frame, event[::-1] & (np.arange(30) > 20))[0].text == "9 events in 30 rows"


def test_values_far_outside_the_training_range() -> None:
    train = pd.DataFrame({"creatinine": [0.6, 1.0, 2.6], "constant": 1.0, "g": ["a", "b", "a"]})
    fitted = Preprocessor(Schema.of(train)).fit(train)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.warn_of_far_values(train.assign(creatinine=[4.5, np.nan, -1.3], constant=9.0))
    with pytest.warns(DataWarning, match=r"'creatinine' is 88.4 in 2 rows .*positions 0, 2.* 0.6 to 2.6: "):
        fitted.warn_of_far_values(train.assign(creatinine=[88.4, 1.0, -2.0]))


def test_predictions_tell_of_far_values_and_scores_do_not(gbsg2: SurvivalData) -> None:
    tree = PrognosticTree(depth=1, leaf="weibull").fit(gbsg2.frame, (gbsg2.time, gbsg2.event))
    far = gbsg2.frame.assign(age=gbsg2.frame["age"].where(gbsg2.frame.index != 8, 999.0))
    for predict in (
        tree.predict,
        tree.apply,
        tree.predict_quantile,
        tree.predict_leaf_proba,
        lambda X: tree.predict_rmst(X, 365.0),
        lambda X: tree.predict_survival_function(X, [365.0]),
    ):
        with pytest.warns(DataWarning, match=r"'age' is 999 in 1 row \(0-based position 8\), far outside"):
            predict(far)
    assert tree.score(far, (gbsg2.time, gbsg2.event)) > 0.6  # warnings are errors here
