"""Files, kind and hostile."""

import gzip

import numpy as np
import pandas as pd
import pytest

from sstorch.data import load_dataset, load_file
from sstorch.exceptions import DataError, DataWarning

GOOD = "age,grade,time,event\n50,II,5,1\n60,I,3,0\n70,II,7,1\n"


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
        (GOOD.replace(",", "\t"), "data.csv"),
        (GOOD.replace(",", "\t"), "data.tsv"),
        (gzip.compress(GOOD.encode(), mtime=0), "data.csv.gz"),
        (gzip.compress(GOOD.replace(",", "\t").encode(), mtime=0), "data.tsv.gz"),
        ("\ufeff" + GOOD, "data.csv"),
        ("\n\n" + GOOD, "data.csv"),
        (GOOD.replace(",", " , "), "data.csv"),
        (GOOD.replace("age,grade", '"age","grade"'), "data.csv"),
        ("sep=|\n" + GOOD.replace(",", "|"), "data.csv"),
        (GOOD.replace("\n", ",,\n"), "data.csv"),
    ],
)
def test_text_files(write, text, name):
    data = load_file(write(text, name))
    assert data.feature_names == ["age", "grade"]
    assert data.frame["age"].tolist() == [50.0, 60.0, 70.0]
    assert data.time.tolist() == [5.0, 3.0, 7.0]
    assert data.n_events == 2


def test_options(write):
    path = write("id|age|days|dead\na|50|5|2\nb|60|3|1\n")
    data = load_file(str(path), time="days", event="dead", event_coding="1/2", drop=["id"], sep="|")
    assert data.feature_names == ["age"]
    assert (
        load_dataset("csv", path=path, time="days", event="dead", event_coding="1/2", drop=["id"]).n_events
        == 1
    )


def test_missing_values_and_the_word_none(write):
    text = "age,therapy,time,event\n.,None,5,1\nNA,yes,3,0\n70,,7,1\n"
    data = load_file(write(text), strict=False)
    assert data.frame["age"].isna().tolist() == [True, True, False]
    assert data.frame["therapy"].tolist()[:2] == ["None", "yes"]
    assert data.frame["therapy"].isna().tolist() == [False, False, True]


def test_row_names_are_left_out(write):
    with pytest.warns(DataWarning, match="the first column has no name and is dropped as row names"):
        data = load_file(write('"","age","time","event"\n"1",50,5,1\n"2",60,3,0\n'))
    assert data.feature_names == ["age"]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "the file is empty"),
        ("\n  \n", "the file is empty"),
        ("age,time,event\n", "no rows below its header"),
        ("age,time,event\n50,5,1\n", "one row; at least two"),
        ("age,time,event\n50,5,1\n60,-3,0\n", r"column 'time' is negative in 1 row \(line 3\)"),
        (
            "age,time,event\n50,5,1\n60,late,0\n",
            r"column 'time' holds 'late'.*1 row \(line 3\); correct or remove",
        ),
        ("age,age,time,event\n50,1,5,1\n60,2,3,0\n", "duplicate column name 'age'"),
        ("age,time,event,time\n50,1,5,1\n60,2,3,0\n", "duplicate column name 'time'"),
        ("age,time,event,\n50,1,1,\n60,2,0,x\n", "column 4 of the header has no name"),
        ("Lab,,Outcome,\nage,hb,time,event\n50,8,1,1\n60,9,2,0\n", "column 2 .* whatever stands above"),
        ("Export of 1 May\nage,time,event\n50,1,1\n", "first line: remove what stands above them"),
        ("sep=;\nage;time;event\n50;5;1\n60;late;0\n", r"'late'.*1 row \(line 4\)"),
        (
            "age,Time,event\n50,5,1\n60,3,0\n",
            "no column 'time'; the columns are 'age', 'Time', 'event'.*mean 'Time'",
        ),
        ("age,time,event\n50,5,1,9\n60,3,0,9\n", "not every row has the 3 cells"),
        ("age,time,event\n50,5,1\n60,3,0,9\n", "not every row has the 3 cells"),
        ("age,time,event\n,5,1\n,3,0\n", "column 'age' is missing in every row"),
        (b"age,time,event\n\x00\x00\x00", "not a text file"),
    ],
)
def test_hostile_files(write, text, match):
    path = write(text)
    with pytest.raises(DataError, match=match) as caught:
        load_file(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("data.xls", b"x", "unknown kind of file; readable are .csv"),
        ("data.dta", b"x", "not a readable Stata file"),
        ("data.csv.gz", b"no gzip", "cannot be read"),
        ("data.csv.gz", gzip.compress(GOOD.encode(), mtime=0)[:30], "cannot be read"),
        ("data.parquet", b"", "the file is empty"),
        ("data.parquet", b"no parquet", "not a readable parquet file"),
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


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["1,234.50", "2,345.60"], "numbers written as text"),
        (["1.234,5", "2.345,6"], "numbers written as text"),
        (["1 234", "2 345"], "numbers written as text"),
        (["1.234,5", "2.345,6"], "write plain numbers into the file, without units"),
        (["12%", "7.5 %"], "numbers written as text"),
        (["12 mg/l", "7.5 mg/l"], "written as text, such as '.* mg/l'; write plain numbers"),
        (["\u22121.2", "7.5"], "numbers written as text"),
        (["2001-06-02", "2001-06-03"], "dates written as text"),
        (["02.06.2001", "3/6/2001"], "dates written as text"),
    ],
)
def test_measurements_and_dates_in_text_are_no_categories(cells, message, tmp_path):
    many = [cells[i % 2].replace("2", str(i % 9 + 1), 1) for i in range(40)]
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


def test_a_file_that_was_cut_off_is_refused(tmp_path):
    file = tmp_path / "data.csv"
    file.write_text("x,time,event\n1,2,1\n\n2,3,0\n3,4")
    with pytest.raises(DataError, match="not every row has the 3 cells of the header: line 5 has 2"):
        load_file(file)
    file.write_text("x,time,event\n1,2,1\n\n2,3,0\n,4,1\n")
    assert len(load_file(file)) == 3


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
