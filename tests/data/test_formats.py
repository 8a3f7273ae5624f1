"""Files of other programs, and what their columns mean."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sstorch import SurvivalRegression, load_dataset
from sstorch.data import SurvivalData, check, load_file
from sstorch.data.tables import read_table
from sstorch.exceptions import ConfigError, DataError, DataWarning

N = 60
DRAWS = np.random.default_rng(3)
COHORT = pd.DataFrame(
    {
        "alter": np.where(np.arange(N) == 4, np.nan, DRAWS.normal(60, 9, N).round(1)),
        "geschlecht": pd.Categorical(DRAWS.choice(["männlich", "weiblich"], N)),
        "beginn": pd.Timestamp("2015-03-01") + pd.to_timedelta(DRAWS.integers(0, 900, N), "D"),
        "tage": DRAWS.integers(10, 2000, N),
        "tot": DRAWS.integers(0, 2, N),
    }
)


def _sav(frame: pd.DataFrame, path: Path) -> None:
    writer = pytest.importorskip("pyreadstat")
    coded = frame.assign(geschlecht=frame["geschlecht"].cat.codes.astype(float))
    labels = {"geschlecht": dict(enumerate(frame["geschlecht"].cat.categories))}
    writer.write_sav(coded, str(path), variable_value_labels=labels)


def _rds(frame: pd.DataFrame, path: Path) -> None:
    pytest.importorskip("pyreadr").write_rds(str(path), frame)


def _xlsx(frame: pd.DataFrame, path: Path) -> None:
    pytest.importorskip("openpyxl")
    frame.to_excel(path, index=False)


def _duckdb(frame: pd.DataFrame, path: Path) -> None:
    with pytest.importorskip("duckdb").connect(str(path)) as connection:
        connection.execute("CREATE TABLE patients AS SELECT * FROM frame")


def _sqlite(frame: pd.DataFrame, path: Path) -> None:
    with sqlite3.connect(path) as connection:
        frame.astype({"geschlecht": str}).to_sql("patients", connection, index=False)
    connection.close()


def _xpt(frame: pd.DataFrame, path: Path) -> None:
    writer = pytest.importorskip("pyreadstat")
    writer.write_xport(frame.astype({"geschlecht": str}), str(path), file_format_version=8)


WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    ".xlsx": _xlsx,
    ".dta": lambda frame, path: frame.to_stata(path, write_index=False, version=118),
    ".sav": _sav,
    ".xpt": _xpt,
    ".rds": _rds,
    ".parquet": lambda frame, path: frame.to_parquet(path),
    ".feather": lambda frame, path: frame.to_feather(path),
    ".duckdb": _duckdb,
    ".sqlite": _sqlite,
}


@pytest.mark.parametrize("ending", WRITERS)
def test_formats_give_the_same_data(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"kohorte{ending}"
    WRITERS[ending](COHORT, path)
    table = "patients" if ending in (".duckdb", ".sqlite") else None
    data = load_file(path, time="tage", event="tot", drop=["beginn"], table=table)
    np.testing.assert_array_equal(data.frame["alter"], COHORT["alter"])
    assert data.frame["geschlecht"].tolist() == COHORT["geschlecht"].tolist()
    np.testing.assert_array_equal(data.time, COHORT["tage"])
    np.testing.assert_array_equal(data.event, COHORT["tot"] == 1)


def test_sas7bdat_is_read() -> None:
    """60 rows of GBSG2 with a missing age and a date, written by ``write_sas`` of R's haven 2.5.1."""
    pytest.importorskip("pyreadstat")
    data = load_file(Path(__file__).with_name("gbsg2.sas7bdat"), time="days", event="died", drop=["seen"])
    known = load_dataset("gbsg2").subset(np.arange(60))
    expected = known.frame[["age", "horTh", "pnodes"]].astype({"age": float})
    expected.loc[4, "age"] = np.nan
    for name in expected:
        assert data.frame[name].dropna().tolist() == expected[name].dropna().tolist()
        assert data.frame[name].isna().tolist() == expected[name].isna().tolist()
    np.testing.assert_array_equal(data.time, known.time)
    np.testing.assert_array_equal(data.event, known.event)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "cp1252", "latin-1"])
def test_encoding_and_decimal_comma_are_detected(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "kohorte.csv"
    COHORT.to_csv(path, sep=";", decimal=",", index=False, encoding=encoding)
    with pytest.warns(DataWarning, match=r"decimal commas \(encoding=.*, decimal=,\)"):
        read = read_table(path)
    np.testing.assert_array_equal(read.frame["alter"], COHORT["alter"])
    assert set(read.frame["geschlecht"]) == {"männlich", "weiblich"}
    assert read.found["decimal"] == ","


def test_grouped_thousands_are_no_decimals(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("cost;time;event\n1,234;3;1\n2,345;4;0\n")
    assert read_table(tmp_path / "c.csv").frame["cost"].tolist() == ["1,234", "2,345"]
    for text in ("cells;crp\n250.000;0,5\n1.234;3,1\n", 'cells,crp\n250.000,"0,5"\n1.234,"3,1"\n'):
        (tmp_path / "c.csv").write_text(text)
        with pytest.warns(DataWarning, match="with decimal commas"):
            frame = read_table(tmp_path / "c.csv").frame
        assert frame.to_numpy().tolist() == [["250.000", 0.5], ["1.234", 3.1]]
    with pytest.raises(ConfigError, match="encoding='klingon' does not exist"):
        read_table(tmp_path / "c.csv", encoding="klingon")
    (tmp_path / "c.csv").write_bytes("größe,time\n1,2\n".encode("cp1252"))
    with pytest.raises(DataError, match=r"not utf-8 text .*; leave encoding out"):
        read_table(tmp_path / "c.csv", encoding="utf-8")


def test_empty_first_sheet_names_the_others(tmp_path: Path) -> None:
    pytest.importorskip("openpyxl")
    with pd.ExcelWriter(tmp_path / "c.xlsx") as book:
        pd.DataFrame(columns=["Export"]).to_excel(book, sheet_name="Info", index=False)
        COHORT.to_excel(book, sheet_name="Data", index=False)
    with pytest.raises(DataError, match=r"the sheet 'Info' has no rows.*choose one of 'Info', 'Data'"):
        check(tmp_path / "c.xlsx")


def test_database_without_table_and_failing_query_raise(tmp_path: Path) -> None:
    _sqlite(COHORT, tmp_path / "c.db")
    with pytest.raises(ConfigError, match="table=NAME"):
        read_table(f"sqlite:///{tmp_path / 'c.db'}")
    with pytest.raises(DataError, match="failed"):
        read_table(f"sqlite:///{tmp_path / 'c.db'}", table="nothing")
    rows = read_table(f"sqlite:///{tmp_path / 'c.db'}", table="SELECT * FROM patients WHERE tot = 1")
    assert len(rows.frame) == COHORT["tot"].sum()


def test_url_of_sqlalchemy_is_read(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="the extra files installs it")
    _sqlite(COHORT, tmp_path / "c.db")
    url, query = f"sqlite+pysqlite:///{tmp_path / 'c.db'}", "SELECT * FROM patients WHERE tot = 1"
    data = load_file(url, time="tage", event="tot", drop=["beginn"], table=query)
    assert len(data) == COHORT["tot"].sum()
    with pytest.raises(DataError, match="failed"):
        load_file(url, table="nothing")


def test_na_of_r_gives_no_warning() -> None:
    signalling = np.array([0x7FF00000000007A2], dtype=np.uint64).view(np.float64)[0]
    values = COHORT["alter"].to_numpy().copy()
    values[::7] = signalling
    frame = pd.DataFrame({"alter": values, "grad": DRAWS.integers(0, 3, N).astype(float)})
    tree = SurvivalRegression("weibull").fit(frame, (COHORT["tage"], COHORT["tot"]))  # warnings are errors
    quiet = frame.assign(alter=np.where(np.isnan(values), np.nan, values))
    np.testing.assert_array_equal(
        tree.predict_survival_function(frame, [100.0]), tree.predict_survival_function(quiet, [100.0])
    )


def _dated() -> pd.DataFrame:
    end = COHORT["beginn"] + pd.to_timedelta(COHORT["tage"], "D")
    own = COHORT.drop(columns="tage").assign(ende=end.dt.strftime("%d.%m.%Y"))
    return own.assign(beginn=own["beginn"].dt.strftime("%d.%m.%Y"))


def test_dates_are_follow_up(tmp_path: Path) -> None:
    _dated().to_csv(tmp_path / "c.csv", index=False)
    data = load_file(tmp_path / "c.csv", date=["beginn", "ende"], event="tot")
    np.testing.assert_array_equal(data.time, COHORT["tage"])
    assert (data.time_unit, data.feature_names) == ("days", ["alter", "geschlecht"])
    years = load_file(tmp_path / "c.csv", date=["beginn", "ende"], event="tot", time_unit="years")
    np.testing.assert_allclose(years.time, COHORT["tage"] / 365.2425)
    cut = load_file(tmp_path / "c.csv", date=["beginn", "ende"], event="tot", censored_at=500)
    np.testing.assert_array_equal(cut.time, np.minimum(COHORT["tage"], 500))
    np.testing.assert_array_equal(cut.event, (COHORT["tot"] == 1) & (COHORT["tage"] <= 500))


def test_later_follow_up_of_causes_is_censored() -> None:
    frame = pd.DataFrame(
        {"age": range(6), "days": [50, 120, 200, 201, 260, 300], "cause": [1, 2, 1, 2, 0, 1]}
    )
    cut = SurvivalData.from_frame(frame, time="days", event="cause", causes="auto", censored_at=200.0)
    assert cut.cause is not None
    np.testing.assert_array_equal(cut.cause, [1, 2, 1, 0, 0, 0])
    np.testing.assert_array_equal(cut.time, [50, 120, 200, 200, 200, 200])
    with pytest.raises(DataError, match="no event of cause '2' is left before censored_at=100: give a later"):
        cut.censored_at(100)
    with pytest.raises(DataError, match="no event is left before censored_at=40"):
        cut.censored_at(40)


def test_bad_dates_name_rows(tmp_path: Path) -> None:
    frame = _dated()
    frame.loc[3, "ende"] = "31.02.2016"
    frame.to_csv(tmp_path / "c.csv", index=False)
    with pytest.raises(
        DataError, match=r"'31.02.2016', which is not a date of the form %d.%m.%Y, in 1 row \(line 5\)"
    ):
        load_file(tmp_path / "c.csv", date=["beginn", "ende"], event="tot")
    _dated().to_csv(tmp_path / "c.csv", index=False)
    with pytest.raises(DataError, match="'beginn' is before 'ende' in 60 rows"):
        load_file(tmp_path / "c.csv", date=["ende", "beginn"], event="tot")
    frame = _dated()
    frame.loc[3, "ende"] = "01.01.2090"
    frame.to_csv(tmp_path / "c.csv", index=False)
    with pytest.warns(DataWarning, match=r"'ende' is in the future in 1 row \(line 5\)"):
        load_file(tmp_path / "c.csv", date=["beginn", "ende"], event="tot")
    days = {"a": ["01/02/2015"] * 4, "b": ["03/04/2016"] * 4}
    pd.DataFrame({**days, "x": [1, 2, 3, 4], "e": [1, 0, 1, 0]}).to_csv(tmp_path / "d.csv", index=False)
    with pytest.raises(DataError, match=r"choose date_format='%d/%m/%Y' or %m/%d/%Y"):
        load_file(tmp_path / "d.csv", date=["a", "b"], event="e")


@pytest.mark.parametrize(
    ("limits", "columns", "value"),
    [
        ("value", ["crp"], 300.0),
        ("indicator", ["crp", "crp above limit"], 300.0),
        ("missing", ["crp"], np.nan),
    ],
)
def test_detection_limits(limits: str, columns: list[str], value: float, tmp_path: Path) -> None:
    crp = pd.Series(DRAWS.normal(100, 30, N).round(1).astype(str).astype(object))
    crp[[2, 9]] = ">300"
    COHORT[["tage", "tot"]].assign(crp=crp).to_csv(tmp_path / "c.csv", index=False)
    data = load_file(tmp_path / "c.csv", time="tage", event="tot", limits=limits)
    assert data.feature_names == columns
    np.testing.assert_array_equal(data.frame["crp"][[2, 9]], [value] * 2)
    if limits == "indicator":
        assert np.flatnonzero(data.frame["crp above limit"]).tolist() == [2, 9]
        assert data.file_options is not None
        assert data.file_options["limits"] == {"crp": "indicator >"}
    with pytest.raises(DataError, match=r"'>300' in 2 rows .* is a detection limit"):
        load_file(tmp_path / "c.csv", time="tage", event="tot")


def test_codes_of_categories(tmp_path: Path) -> None:
    stage = np.tile([10, 2, 1], N // 3)
    COHORT[["tage", "tot"]].assign(stage=stage).to_csv(tmp_path / "c.csv", index=False)
    data = load_file(tmp_path / "c.csv", time="tage", event="tot", category=["stage"])
    assert list(data.frame["stage"].cat.categories) == ["1", "2", "10"]
    with pytest.raises(DataError, match="no column 'grade'"):
        load_file(tmp_path / "c.csv", time="tage", event="tot", category=["grade"])
