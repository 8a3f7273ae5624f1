"""Files as pandas reads them: each is refused, named in a warning, or accepted in silence."""

import gzip
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sstorch.data import SurvivalData, read_file
from sstorch.data.files import READERS
from sstorch.exceptions import ConfigError, DataError

N = 60
DRAWS = np.random.default_rng(5)
COHORT = pd.DataFrame(
    {
        "age": DRAWS.integers(30, 85, N),
        "marker": DRAWS.normal(size=N).round(3),
        "sex": DRAWS.choice(["männlich", "weiblich"], N),
        "time": DRAWS.exponential(400, N).round(1) + 1,
        "event": DRAWS.integers(0, 2, N),
    }
)
CSV = COHORT.to_csv(index=False)


def cohort(**columns: Any) -> pd.DataFrame:
    """An ordinary cohort, some columns of it given."""
    return COHORT.assign(**columns)


def some(column: str, where: dict[int, object]) -> list[object]:
    """The values of a column, a few of them replaced."""
    return [where.get(i, value) for i, value in enumerate(COHORT[column])]


def with_cells(cells: list[str], sep: str = ";") -> str:
    """A text file with these cells in a column."""
    rows = [f"{cell}{sep}{5 + i}{sep}{i % 2}" for i, cell in enumerate(cells)]
    return "\n".join([f"crp{sep}time{sep}event", *rows])


def excel(decimal: str = ",") -> str:
    """As a German Excel writes it."""
    return "\ufeff" + COHORT.to_csv(index=False, sep=";", decimal=decimal, lineterminator="\r\n")


Case = tuple[str, Any, tuple[str, ...], dict[str, Any]]


def refused(content: Any, *words: str, **options: Any) -> Case:
    """The outcome, a file, what is said of it, and how it is read."""
    return "refused", content, words, options


def warned(content: Any, *words: str) -> Case:
    return "warned", content, words, {}


def accepted(content: Any, **options: Any) -> Case:
    return "accepted", content, (), options


SEMICOLON = {"sep": ";"}
FILES: dict[str, Case] = {
    "an honest file": accepted(CSV),
    "blanks and quotes": accepted(CSV.replace(",", " , ").replace("age", '"age"')),
    "encoded": accepted(CSV.encode("utf-16"), read={"encoding": "utf-16"}),
    # identifiers and columns that tell the outcome
    "numbered subjects": warned(cohort(id=np.arange(N)), "'id' has a different whole number"),
    "the time itself": refused(cohort(copy=COHORT["time"]), "'copy' of X equals the follow-up time"),
    "mostly missing": warned(cohort(rare=[1.5, 2.5] + [None] * 58), "'rare' is missing in 97% of the rows"),
    # codes for missing values
    "-999 in ages, said": accepted(cohort(age=some("age", {3: -999, 9: -999})), read={"na_values": [-999]}),
    "unknown among numbers": refused(
        cohort(marker=some("marker", {3: "unknown"})), "but 'unknown' in 1 row (data row 4)",
        "na_values=[CODE]"
    ),
    # events
    "nine events": warned(cohort(event=[1] * 9 + [0] * 51), "9 events in 60 rows"),
    "events in words, said": accepted(cohort(event=["yes", "no"] * 30), event_value="yes"),
    "a word for events that is not there": refused(
        cohort(event=["yes", "no"] * 30), "is 'yess' in no row", "Did you mean 'yes'?", event_value="yess"
    ),
    "events TRUE and FALSE": accepted(cohort(event=["TRUE", "FALSE"] * 30)),
    # numbers of other countries
    "decimal commas": refused(excel(), "which is text: name the signs", "in 60 rows", read=SEMICOLON),
    "decimal commas, said": accepted(excel(), read=SEMICOLON | {"decimal": ","}),
    "two faults": refused(
        cohort(seen=pd.date_range("2001-01-01", periods=N).astype(str), marker=some("marker", {3: "late"})),
        "column 'marker' holds 59 different numbers", "; column 'seen' holds 60 different numbers or dates",
    ),
    # cells that are missing or too many
    "empty": refused("", "the file is empty"),
    "a header alone": refused("age,time,event\n", "no rows below its header"),
    "a line above": refused("Export of 1 May\n" + CSV, "it has one column", "read={'skiprows': 1}"),
    "a name twice": refused(CSV.replace("marker", "age"), "duplicate column name 'age'"),
    "cells beyond the header": refused(
        CSV.replace("\n", ",9\n").replace("event,9", "event"), "not every row has"
    ),
    "empty rows below": refused(CSV + ",,,,\n", "column 'time' is missing in 1 row (data row 61)"),
    "two headers": refused(CSV + CSV, "'time' holds 'time', which is not a number, in 1 row (data row 61)"),
    "a negative time, below a cell of two lines": refused(
        CSV.replace("sex", '"sex,\nas reported"').replace(f",{COHORT['time'][4]}", ",-5"),
        "column 'time' is negative in 1 row (data row 5)",
    ),
    # options of pandas
    "Latin-1": refused(CSV.encode("latin-1"), "give read={'encoding': 'latin-1'}"),
    "no option": refused(CSV, "cannot be read with read=", read={"separator": ";"}),
}  # fmt: skip


def write(folder: Path, content: Any, name: str = "cohort.csv") -> Path:
    path = folder / name
    if isinstance(content, pd.DataFrame):
        content = content.to_csv(index=False)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def load(path: Path, read: Any = None, **options: Any) -> SurvivalData:
    """The rows of a file with a column of times and one of events."""
    return SurvivalData.from_frame(read_file(path, read), **options)


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
    expected, content, words, options = FILES[name]
    path = write(tmp_path, content)
    found, text = outcome(lambda: load(path, **options))
    assert found == expected, text
    assert len(text.splitlines()) == (expected != "accepted"), text
    assert "0-based" not in text
    assert all(word in text for word in words), text


def _sav(frame: pd.DataFrame, path: Path) -> None:
    coded = frame.assign(sex=pd.Categorical(frame["sex"]).codes.astype(float))
    words = dict(enumerate(sorted(frame["sex"].unique())))
    pytest.importorskip("pyreadstat").write_sav(coded, str(path), variable_value_labels={"sex": words})


WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    ".CSV": lambda frame, path: frame.to_csv(path, index=False),
    ".csv.gz": lambda frame, path: frame.to_csv(path, index=False),
    ".tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    ".parquet": lambda frame, path: frame.to_parquet(path),
    ".xlsx": lambda frame, path: frame.to_excel(path, index=False),
    ".dta": lambda frame, path: frame.to_stata(path, write_index=False, version=118),
    ".sav": _sav,
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_formats_give_the_same_data(suffix: str, tmp_path: Path) -> None:
    if suffix == ".xlsx":
        pytest.importorskip("openpyxl")
    path, frame = tmp_path / f"cohort{suffix}", cohort(age=some("age", {4: np.nan}))
    WRITERS[suffix](frame, path)
    data = load(path)
    np.testing.assert_allclose(data.frame["age"], frame["age"], rtol=1e-15)
    assert [word[0] for word in data.frame["sex"]] == [word[0] for word in frame["sex"]]
    np.testing.assert_allclose(data.time, frame["time"], rtol=1e-15)
    np.testing.assert_array_equal(data.event, frame["event"] == 1)


def test_sas7bdat_is_read() -> None:
    """60 rows of GBSG2 with a missing age and a date, written by ``write_sas`` of R's haven 2.5.1."""
    frame = read_file(Path(__file__).with_name("gbsg2.sas7bdat"))
    assert len(frame) == 60
    assert np.flatnonzero(frame["age"].isna()).tolist() == [4]
    assert set(frame["horTh"]) == {"no", "yes"}


CELLS = ["1.970", "658", "23.500", "-1.250"]


def test_numbers_that_could_have_thousands_raise(tmp_path: Path) -> None:
    path = write(tmp_path, with_cells(CELLS, ","))
    remedies = r"give read={'thousands': '\.'} .*, or read={'decimal': '\.'}"
    with pytest.raises(DataError, match=rf"'crp' .*'1\.970' in 3 rows \(data rows 1, 3, 4\).*{remedies}"):
        read_file(path)
    assert read_file(path, {"thousands": "."})["crp"].tolist() == [1970, 658, 23500, -1250]
    assert read_file(path, {"decimal": "."})["crp"].tolist() == [1.97, 658, 23.5, -1.25]
    assert read_file(path, {"dtype": {"crp": str}})["crp"].tolist()[0] == "1.970"
    for cell in ("0.658", "12.5", "1.9703", "1970.125"):  # which answer the question
        frame = read_file(write(tmp_path, with_cells([*CELLS, cell], ",")))
        assert frame["crp"].tolist() == [float(each) for each in [*CELLS, cell]]


@pytest.mark.parametrize(
    ("cells", "read"),
    [
        (["1.970.000", "658"], {"thousands": "."}),
        (["1.970,5", "658,2"], {"thousands": ".", "decimal": ","}),
        (["1'970", "658"], {"thousands": "'"}),
        (["1 970", "658"], {"thousands": " "}),
        (["1\u2019970", "658"], {"thousands": "\u2019", "engine": "python"}),
        (["1,970,000", "1,970"], {"thousands": ","}),
        (["1,5", "", "12,345"], {"decimal": ","}),
    ],
)
def test_signs_of_numbers_in_text_raise(tmp_path: Path, cells: list[str], read: dict[str, str]) -> None:
    path = write(tmp_path, with_cells(cells))
    with pytest.raises(DataError, match=r"column 'crp' holds .1.*, which is text: name the signs"):
        read_file(path, SEMICOLON)  # were categories
    assert read_file(path, SEMICOLON | read)["crp"].dtype.kind in "if"


def test_text_cells_of_excel_with_thousands_raise(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl", reason="Excel files need openpyxl")
    path = tmp_path / "cohort.xlsx"
    frame = pd.DataFrame({"x": ["1.970", "658"], "days": [5, 6], "sex": ["f", None], "z": [1.5, None]})
    frame.to_excel(path, index=False)
    with pytest.raises(DataError, match=r"column 'x' holds numbers such as '1.970' in 1 row \(data row 1\)"):
        read_file(path)  # was read as 1.97
    assert read_file(path, {"thousands": "."})["x"].tolist() == [1970, 658]
    frame.assign(x=[1.97, 658]).to_excel(path, index=False)
    assert [str(kind) for kind in read_file(path).dtypes] == ["float64", "int64", "object", "float64"]


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("data.xls", b"x", "unknown kind of file; readable are .csv"),
        ("data.dta", b"x", "cannot be read"),
        ("data.csv.gz", gzip.compress(CSV.encode(), mtime=0)[:30], "cannot be read"),
        ("data.parquet", b"no parquet", "cannot be read"),
    ],
)
def test_unreadable_files(tmp_path: Path, name: str, content: bytes, match: str) -> None:
    with pytest.raises(DataError, match=match):
        read_file(write(tmp_path, content, name))
    with pytest.raises(DataError, match=r"nothing\.csv: no such file"):
        read_file(tmp_path / "nothing.csv")
    with pytest.raises(DataError, match="a folder, not a file"):
        read_file(tmp_path)


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*args: object, **options: object) -> None:
        raise ImportError("Missing optional dependency 'openpyxl'")

    monkeypatch.setitem(READERS, ".xlsx", read)
    with pytest.raises(ConfigError, match=r"\.xlsx files need a package .*files"):
        read_file(write(tmp_path, b"x", "data.xlsx"))


def test_missing_values_and_the_word_none(tmp_path: Path) -> None:
    path = write(tmp_path, "age ,therapy,time,event\n.,None,5,1\nNA,yes,3,0\n-9.0,,7,1\n70, yes ,8,1\n")
    typed = {"na_values": [-9], "dtype": {"time": float}}  # pandas makes the values
    of_age = ({"na_values": {"age": code}} for code in (-9, "-9", ["-9"]))
    for read, missing in (({}, 2), ({"na_values": [-9]}, 3), *((each, 3) for each in of_age), (typed, 3)):
        frame = read_file(path, read)
        assert frame["age"].isna().sum() == missing
        assert frame["therapy"].astype(object).tolist()[:2] == ["None", "yes"]
        assert frame["therapy"].isna().tolist() == [False, False, True, False]


def test_options_of_missing_values_and_dates_are_those_of_pandas(tmp_path: Path) -> None:
    path = write(tmp_path, "seen,code,time,event\n2020-01-02,NA,1,1\n2020-01-03,KE,2,0\n2020-02-03,UG,3,1\n")
    for read in ({"keep_default_na": False}, {"na_filter": False}):
        assert read_file(path, read)["code"].tolist() == ["NA", "KE", "UG"]
    with pytest.raises(DataError, match="'seen' holds dates"):
        load(path, {"parse_dates": ["seen"]})


def test_long_identifiers_keep_their_digits(tmp_path: Path) -> None:
    rows = "".join(f"12345678901234567890{i},{i},{i + 1},1,{i * i + 3}\n" for i in range(3))
    data = load(write(tmp_path, f"id,entry,time,event,x\n{rows}"), entry="entry", id="id")
    assert data.subject.tolist() == [0, 1, 2]
