"""Files as pandas reads them, kind and hostile."""

import ast
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sstorch.checks import wording
from sstorch.data import load_file, read_file
from sstorch.exceptions import ConfigError, DataError

GOOD = "age,grade,time,event\n50,II,5,1\n60,I,3,0\n70,II,7,1\n"
N = 60
DRAWS = np.random.default_rng(3)
COHORT = pd.DataFrame(
    {
        "age": np.where(np.arange(N) == 4, np.nan, DRAWS.normal(60, 9, N).round(1)),
        "sex": pd.Categorical(DRAWS.choice(["männlich", "weiblich"], N)),
        "days": DRAWS.integers(10, 2000, N),
        "died": DRAWS.integers(0, 2, N),
    }
)


@pytest.fixture
def write(tmp_path):
    def _write(text, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return _write


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (GOOD, "data.csv"),
        (GOOD.replace("\n", "\r\n"), "data.CSV"),
        (GOOD.replace(",", ";"), "data.csv"),
        (GOOD.replace(",", "|"), "data.txt"),
        (GOOD.replace(",", "\t"), "data.csv"),
        (GOOD.replace(",", "\t"), "data.tsv"),
        (gzip.compress(GOOD.encode(), mtime=0), "data.csv.gz"),
        (gzip.compress(GOOD.replace(",", "\t").encode(), mtime=0), "data.tsv.gz"),
        ("\ufeff" + GOOD, "data.csv"),
        ("\n\n" + GOOD, "data.csv"),
        (GOOD.replace(",", " , "), "data.csv"),
        (GOOD.replace("age,grade", '"age","grade"'), "data.csv"),
    ],
)
def test_text_files(write, text, name):
    data = load_file(write(text, name))
    assert data.feature_names == ["age", "grade"]
    assert data.frame["age"].tolist() == [50.0, 60.0, 70.0]
    assert data.frame["grade"].tolist() == ["II", "I", "II"]
    assert data.time.tolist() == [5.0, 3.0, 7.0]
    assert data.n_events == 2


def test_separator_is_not_one_within_quotes(write):
    text = '"a, b, c";"time";"event"\n1;5;1\n2;3;0\n'
    assert load_file(write(text)).feature_names == ["a, b, c"]


def test_semicolons_and_decimal_commas(write):
    path = write("id;age;crp;days;dead\na;50;0,5;5;2\nb;60;12,25;3;1\n")
    options: dict[str, Any] = {"time": "days", "event": "dead", "event_value": 2, "drop": ["id"]}
    for read in ({"sep": ";", "decimal": ","}, {"decimal": ","}):
        data = load_file(path, **options, read=read)
        assert data.frame["crp"].tolist() == [0.5, 12.25]
        assert data.n_events == 1
    assert read_file(path, {"decimal": ",", "usecols": ["age", "crp"]}).columns.tolist() == ["age", "crp"]


def _xlsx(frame: pd.DataFrame, path: Path) -> None:
    pytest.importorskip("openpyxl", reason="the extra files installs it")
    frame.to_excel(path, index=False)


def _sav(frame: pd.DataFrame, path: Path) -> None:
    writer = pytest.importorskip("pyreadstat", reason="the extra files installs it")
    coded = frame.assign(sex=frame["sex"].cat.codes.astype(float))
    writer.write_sav(
        coded, str(path), variable_value_labels={"sex": dict(enumerate(frame["sex"].cat.categories))}
    )


WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    ".csv": lambda frame, path: frame.to_csv(path, index=False),
    ".tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    ".parquet": lambda frame, path: frame.to_parquet(path),
    ".xlsx": _xlsx,
    ".dta": lambda frame, path: frame.to_stata(path, write_index=False, version=118),
    ".sav": _sav,
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_formats_give_the_same_data(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"cohort{suffix}"
    WRITERS[suffix](COHORT, path)
    data = load_file(path, time="days", event="died")
    np.testing.assert_allclose(data.frame["age"], COHORT["age"], rtol=1e-15)
    assert [word[0] for word in data.frame["sex"]] == [word[0] for word in COHORT["sex"]]
    np.testing.assert_array_equal(data.time, COHORT["days"])
    np.testing.assert_array_equal(data.event, COHORT["died"] == 1)


def test_sas7bdat_is_read() -> None:
    """60 rows of GBSG2 with a missing age and a date, written by ``write_sas`` of R's haven 2.5.1."""
    frame = read_file(Path(__file__).with_name("gbsg2.sas7bdat"))
    assert len(frame) == 60
    assert np.flatnonzero(frame["age"].isna()).tolist() == [4]
    assert set(frame["horTh"]) == {"no", "yes"}


CELLS = ["1.970", "658", "23.500", "-1.250"]


def cells_file(write: Any, cells: list[str], sign: str) -> Path:
    rows = [f"{cell.replace('.', sign)};{5 + i};{i % 2}" for i, cell in enumerate(cells)]
    return write("\n".join(["crp;time;event", *rows]))


@pytest.mark.parametrize(("sign", "name"), [(".", "point"), (",", "comma")])
def test_numbers_that_could_have_thousands_are_asked_for(write: Any, sign: str, name: str) -> None:
    path = cells_file(write, CELLS, sign)
    remedies = rf"give read={{'thousands': '\{sign}'}} .*, or read={{'decimal': '\{sign}'}}"
    for read in (load_file, read_file):
        with pytest.raises(
            DataError, match=rf"column 'crp' .*'1\{sign}970' in 3 rows \(data rows 1, 3, 4\).*{remedies}"
        ):
            read(path)
    assert read_file(path, {"thousands": sign})["crp"].tolist() == [1970, 658, 23500, -1250]
    assert read_file(path, {"decimal": sign})["crp"].tolist() == [1.97, 658, 23.5, -1.25]
    with pytest.raises(DataError, match="thousands"):
        read_file(path, {"sep": ";"})
    assert read_file(path, {"dtype": {"crp": str}})["crp"].tolist()[0] == f"1{sign}970"


@pytest.mark.parametrize("cell", ["0.658", "12.5", "1.9703", "1970.125"])
def test_other_numbers_of_the_column_answer_the_question(write: Any, cell: str) -> None:
    frame = read_file(cells_file(write, [*CELLS, cell], "."))
    assert frame["crp"].tolist() == [float(each) for each in [*CELLS, cell]]


def test_numbers_with_another_decimal_sign_are_no_categories(write: Any) -> None:
    path = cells_file(write, ["1.5", "2", "1.5", "", "30.25"], ",")
    with pytest.raises(
        DataError, match=r"column 'crp' holds '1,5' in 3 rows \(data rows 1, 3, 5\).*"
    ) as told:
        load_file(path)
    assert str(told.value).endswith("give read={'decimal': ','}")
    with wording(options="dataset."), pytest.raises(DataError, match=r"""'dataset.read={decimal:","}'$"""):
        load_file(path)
    with pytest.raises(DataError, match=r"'1\.5' in 3 rows .*sign ',': give read={'decimal': '\.'}"):
        load_file(cells_file(write, ["1.5", "2", "1.5", "", "30.25"], "."), read={"decimal": ","})


@pytest.mark.parametrize(
    ("text", "read", "match"),
    [
        ("", {}, "the file is empty"),
        ("age,age,time,event\n50,1,5,1\n60,2,3,0\n", {}, "duplicate column name 'age'"),
        ("age,time,event\n", {}, "no rows below its header"),
        ("age,time,event\n50,5,1\n", {}, "one row; at least two"),
        ("age:time:event\n50:5:1\n", {}, r"one column, 'age:time:event': give the separator, .*'sep': ';'"),
        (
            "Export of 1 May\nage,time,event\n50,1,1\n",
            {},
            r"lines stand above the names .*read={'skiprows': 1}",
        ),
        ("age,time,event\n50,5,1\n60,-3,0\n", {}, r"'time' is negative in 1 row \(data row 2\)"),
        (
            "age,time,event\n50,5,1\n60,late,0\n",
            {},
            r"'time' holds 'late'.*\(data row 2\); correct or remove",
        ),
        ("age,Time,event\n50,5,1\n60,3,0\n", {}, "no column 'time'; .*mean 'Time'"),
        ("age,time,event\n50,5,1,9\n60,3,0,9\n", {}, "not every row has the cells of the header"),
        ("age,time,event\n50,5,1\n60,3,0,9\n", {}, "not every row has the cells of the header"),
        ("age,time,event\n,5,1\n,3,0\n", {}, "column 'age' is missing in every row"),
        (GOOD, {"separator": ";"}, "cannot be read with read=.*separator"),
        (GOOD.replace("age", "größe").encode("latin-1"), {}, r"encoding .*give read={'encoding': 'latin-1'}"),
        (GOOD, {"encoding": "klingon"}, "unknown encoding"),
    ],
)
def test_hostile_files(write, text, read, match):
    path = write(text)
    with pytest.raises(DataError, match=match) as caught:
        load_file(path, read=read)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("data.xls", b"x", "unknown kind of file; readable are .csv"),
        ("data.dta", b"x", "cannot be read"),
        ("data.csv.gz", b"no gzip", "cannot be read"),
        ("data.csv.gz", gzip.compress(GOOD.encode(), mtime=0)[:30], "cannot be read"),
        ("data.parquet", b"no parquet", "cannot be read"),
    ],
)
def test_unreadable_files(write, name, content, match):
    with pytest.raises(DataError, match=match):
        load_file(write(content, name))


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"nothing\.csv: no such file"):
        load_file(tmp_path / "nothing.csv")
    with pytest.raises(DataError, match="a folder, not a file"):
        load_file(tmp_path)


def test_missing_package_is_named(write, monkeypatch):
    def read(*args, **options):
        raise ImportError("Missing optional dependency 'openpyxl'")

    monkeypatch.setitem(__import__("sstorch.data.files").data.files.READERS, ".xlsx", read)
    with pytest.raises(ConfigError, match=r"\.xlsx files need a package .*files"):
        load_file(write(b"x", "data.xlsx"))


def test_encodings_are_those_of_pandas(write):
    path = write(GOOD.replace("age", "größe").encode("utf-16"))
    assert load_file(path, read={"encoding": "utf-16"}).feature_names == ["größe", "grade"]


def test_missing_values_and_the_word_none(write):
    text = "age,therapy,time,event\n.,None,5,1\nNA,yes,3,0\n-9,,7,1\n70, yes ,8,1\n"
    data = load_file(write(text), strict=False)
    assert data.frame["age"].isna().tolist() == [True, True, False, False]
    assert data.frame["therapy"].astype(object).tolist()[:2] == ["None", "yes"]
    assert data.frame["therapy"].isna().tolist() == [False, False, True, False]
    for codes in ([-9], {"age": -9}, {"age": ["-9"]}):
        data = load_file(write(text), strict=False, read={"na_values": codes})
        assert data.frame["age"].isna().tolist() == [True, True, True, False]
        assert data.frame["therapy"].isna().tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["1,234.50", "2,345.60"], r"give read=\{'thousands': ','\}"),
        (["1.234,5", "2.345,6"], r"give read=\{'thousands': '\.', 'decimal': ','\}"),
        (["1 234", "2 345"], r"give read=\{'thousands': ' '\}"),
        (["12%", "7.5 %"], "numbers written as text"),
        (["12 mg/l", "7.5 mg/l"], "written as text, such as '.* mg/l'; write plain numbers"),
        (["\u22121.2", "7.5"], "numbers written as text"),
        (["12.5", "unknown", "3.5"], r"read={'na_values': \['unknown'\]}"),
        (["2001-06-02", "2001-06-03"], "dates written as text"),
        (["02.06.2001", "3/6/2001"], "dates written as text"),
    ],
)
def test_measurements_and_dates_in_text_are_no_categories(cells, message, tmp_path):
    many = [cells[i % len(cells)].replace("2", str(i % 9 + 1), 1) for i in range(40)]
    many = [text.replace("1", str(i // 9 + 1), 1) for i, text in enumerate(many)]
    frame = pd.DataFrame({"cost": many, "time": np.arange(1, 41), "event": 1})
    frame.to_csv(tmp_path / "data.csv", index=False)
    assert frame["cost"].nunique() > 10
    with pytest.raises(DataError, match=message):
        load_file(tmp_path / "data.csv")


def test_words_with_digits_are_categories(tmp_path):
    words = [f"T{i % 13}N{i % 2}" if i % 3 else f"{i % 13}-{i % 13 + 5}" for i in range(60)]
    pd.DataFrame({"stage": words, "time": np.arange(1, 61), "event": 1}).to_csv(
        tmp_path / "data.csv", index=False
    )
    assert load_file(tmp_path / "data.csv").frame["stage"].nunique() > 10


def test_all_faults_of_a_file_are_in_one_message(write):
    rows = [
        f"P{i},{'late' if i == 3 else i + 1},{'yes' if i % 2 else 'no'},2020-01-{i + 1:02d},{i % 3}"
        for i in range(25)
    ]
    path = write("id,time,event,visit,grade\n" + "\n".join(rows))
    told = r"3 faults: \(1\) column 'time' holds 'late'.*; \(2\) column 'event' holds 'no'.*"
    with pytest.raises(DataError, match=told + r"; \(3\) column 'visit' holds dates"):
        load_file(path)
    path = write("id,time,event,visit,grade\n" + "\n".join(rows).replace("late", "4"))
    told = r"2 faults: \(1\) column 'visit' holds dates.*; \(2\) column 'id' has 25 different values"
    with pytest.raises(DataError, match=told):
        load_file(path, event_value="yes")


@pytest.mark.parametrize(
    ("cells", "remedy"),
    [
        (["1.970.000", "658"], r"give read=\{'thousands': '\.'\}"),
        (["1.970,5", "658,2"], r"give read=\{'thousands': '\.', 'decimal': ','\}"),
        (["1'970", "658"], r"give read=\{'thousands': \"'\"\}"),
        (["1 970", "658"], r"give read=\{'thousands': ' '\}"),
        (["1\u2019970", "658"], r"give read=\{'thousands': '\u2019'\}"),
        (["1\u00a0970", "658"], r"give read=\{'thousands': '\\xa0'\}"),
        (["1,970,000", "1,970"], r"give read=\{'thousands': ','\}"),
        (["1,5", "12,345"], r"give read=\{'decimal': ','\}"),
    ],
)
def test_signs_between_thousands_in_text_raise(tmp_path: Path, cells: list[str], remedy: str) -> None:
    path = tmp_path / "cohort.csv"
    path.write_text("x;days\n" + "".join(f"{cell};5\n" for cell in cells))
    with pytest.raises(DataError, match=remedy) as caught:
        read_file(path)  # were categories
    read = ast.literal_eval(str(caught.value).split("read=")[1])
    assert read_file(path, read)["x"].dtype.kind in "if"


def test_text_cells_of_excel_with_thousands_raise(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl", reason="Excel files need openpyxl")
    path = tmp_path / "cohort.xlsx"
    frame = pd.DataFrame({"x": ["1.970", "658"], "days": [5, 6], "sex": ["f", None], "z": [1.5, None]})
    frame.to_excel(path, index=False)
    with pytest.raises(DataError, match=r"column 'x' holds numbers such as '1.970' in 1 row \(data row 1\)"):
        read_file(path)  # was read as 1.97
    frame.assign(x=["1 970", "658"]).to_excel(path, index=False)
    with pytest.raises(DataError, match=r"column 'x' holds '1 970'.* give read=\{'thousands': ' '\}"):
        read_file(path)
    assert read_file(path, {"thousands": " "})["x"].tolist() == [1970, 658]
    frame.assign(x=[1.97, 658]).to_excel(path, index=False)
    read = read_file(path)
    assert read["x"].tolist() == [1.97, 658.0]
    assert [str(kind) for kind in read.dtypes] == ["float64", "int64", "object", "float64"]
