"""What `check` finds in a dirty export, in each format, and that the command it proposes runs."""

import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sstorch.data import SurvivalData, check, load_file
from sstorch.exceptions import ConfigError, DataError
from tests.app import sstorch

N = 120


def dirty() -> pd.DataFrame:
    """An export as text: decimal commas, dates, codes, detection limits, blanks, an id that stands twice."""
    draws = np.random.default_rng(5)
    start = pd.Timestamp("2015-03-01") + pd.to_timedelta(draws.integers(0, 900, N), "D")
    end = start + pd.to_timedelta(draws.integers(10, 2000, N), "D")
    numbers = pd.DataFrame({"Größe": draws.normal(170, 9, N), "Kreatinin": draws.normal(100, 20, N)}).round(1)
    comma = numbers.astype(str).apply(lambda column: column.str.replace(".", ",")).astype(object)
    comma.loc[11, "Größe"] = ""
    comma.loc[[4, 9], "Kreatinin"] = ">300"
    patient = [f"P{i:04d}" for i in range(N)]
    patient[8] = patient[5]
    diabetes = draws.integers(0, 2, N)
    diabetes[[3, 7, 20]] = -9
    return pd.DataFrame(
        {
            "Patient": patient,
            **comma,
            "Raucher": draws.choice(["ja", "nein", "unbekannt"], N, p=[0.4, 0.5, 0.1]),
            "Geschlecht": draws.choice(["m", "w "], N),
            "Diabetes": diabetes,
            "Aufnahme": start.strftime("%d.%m.%Y"),
            "Letzter Kontakt": end.strftime("%d.%m.%Y"),
            "Verstorben": draws.choice(["ja", "nein"], N),
        }
    )


def _written(frame: pd.DataFrame, folder: Path, ending: str) -> Path:
    path = folder / f"Export{ending}"
    if ending == ".csv":
        frame.to_csv(path, sep=";", index=False, encoding="cp1252")
    elif ending == ".xlsx":
        pytest.importorskip("openpyxl")
        frame.to_excel(path, index=False)
    elif ending == ".parquet":
        frame.to_parquet(path)
    elif ending == ".rds":
        pytest.importorskip("pyreadr").write_rds(str(path), frame)
    else:
        frame = frame.rename(
            columns=lambda name: name.replace("ö", "oe").replace("ß", "ss").replace(" ", "_")
        )
        if ending == ".dta":
            frame.to_stata(path, write_index=False, version=118)
        else:
            pytest.importorskip("pyreadstat").write_sav(frame, str(path))
    return path


@pytest.mark.filterwarnings("ignore:.*read as cp1252")
@pytest.mark.parametrize("ending", [".csv", ".xlsx", ".dta", ".sav", ".rds", ".parquet"])
def test_everything_is_found_in_one_call_and_the_call_runs(ending: str, tmp_path: Path) -> None:
    path = _written(dirty(), tmp_path, ending)
    found = check(path)
    assert found.exit_code == 1
    assert not found.left
    told = "\n".join(found.stops)
    for text in ("'Patient' has 119 different values", "'>300' in 2 rows", "'Diabetes' is -9 in 3 rows"):
        assert text in told
    rows = "lines 5, 9, 22" if ending == ".csv" else "rows 5, 9, 22" if ending == ".xlsx" else "rows 4, 8, 21"
    assert rows in told
    assert "'P0005' in 2 rows" in told
    options = found.options.to_dict()
    assert options["event_value"] == "ja"
    assert options["missing"] == ["unbekannt", -9]
    assert options["drop"] == ["Patient"]
    assert options["limits"] == "indicator"
    assert "encoding" not in options  # a later file for the model may have another
    assert ("decimal" in options) == (ending != ".csv")
    assert load_file(path, **options).describe() == found.data
    assert check(path, **options).exit_code == 0


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:.*read as cp1252")
def test_the_proposed_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _written(dirty(), tmp_path, ".csv")
    shown = str(check(path))
    assert "read as cp1252 text with decimal commas" in shown
    words = shlex.split(next(line for line in shown.splitlines() if line.startswith("  sstorch dataset=csv")))
    quick = ["experiment=quick", "logger=none", "cv.peers=false", f"hydra.run.dir={tmp_path / 'run'}"]
    assert sstorch(monkeypatch, *words[1:], *quick) == 0, capsys.readouterr().err
    assert "120 rows, 6 features (4 numeric, 2 categorical)" in capsys.readouterr().out


def test_clean_frame_has_exit_code_zero_and_unusable_file_is_refused(tmp_path: Path) -> None:
    draws = np.random.default_rng(1)
    frame = pd.DataFrame({"age": draws.normal(60, 9, 80), "days": draws.integers(1, 99, 80), "died": 1})
    frame.loc[::2, "died"] = 0
    found = check(frame)
    assert (found.exit_code, found.stops, found.left) == (0, (), ())
    assert found.options.to_dict() == {"time": "days", "event": "died", "time_unit": "days"}
    assert "age" in found.columns.index
    assert not found.notes
    several = check(frame.assign(pfs_days=frame["days"] // 2, relapse=1 - frame["died"]))
    assert any(
        "times ('pfs_days') and events ('relapse') of another outcome" in note for note in several.notes
    )
    assert not check(frame.assign(relapse=1 - frame["died"]), drop=["relapse"]).notes
    unknown = check(frame.rename(columns={"days": "x1", "died": "x2"}))
    assert unknown.exit_code == 1
    assert "no column 'event'" in unknown.stops[0] or "no column 'time'" in unknown.stops[0]
    with pytest.raises(DataError, match="no such file"):
        check(tmp_path / "no.csv")
    with pytest.raises(ConfigError, match="no such option"):
        check(frame, tiem="days")


def test_start_stop_rows_have_the_column_of_their_subjects_guessed() -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"pat_id": np.repeat(np.arange(30), 2), "start": [0, 5] * 30})
    rows["stop"] = rows["start"] + rng.integers(1, 6, 60)
    found = check(rows.assign(died=[0, 1] * 30, age=rng.normal(60, 9, 60)))
    assert found.options.id == "pat_id"
    assert "60 rows of 30 subjects" in found.data


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"Tage": -4}, "column 'Tage' is negative in 1 row (row 4)"),
        (
            {"Letzter Kontakt": "31.02.2016"},
            "a date of the form %d.%m.%Y, in 1 row (row 4)",
        ),
        ({"Letzter Kontakt": "01.01.2001"}, "date 'Letzter Kontakt' is before 'Aufnahme' in 1 row (row 4)"),
    ],
)
def test_one_bad_value_does_not_hide_the_outcome(change: dict[str, object], text: str) -> None:
    frame = dirty()[["Aufnahme", "Letzter Kontakt", "Geschlecht"]].assign(Verstorben=["FALSCH", "WAHR"] * 60)
    if "Tage" in change:
        frame = frame[["Geschlecht", "Verstorben"]].assign(Tage=np.arange(1, N + 1))
    assert not check(frame).left
    frame.loc[3, list(change)] = list(change.values())
    assert text in check(frame).left[0]


def test_dates_of_death_alone_end_no_follow_up_of_the_living() -> None:
    frame = dirty()[["Aufnahme", "Letzter Kontakt", "Geschlecht"]]
    frame = frame.rename(columns={"Letzter Kontakt": "Todesdatum"})
    frame.loc[frame.index % 2 == 0, "Todesdatum"] = None
    found = check(frame)
    assert "'Todesdatum' is missing in 60 rows" in found.left[0]
    assert "by the last contact" in found.left[0]
    assert "add a column of 1 where it is present" in found.notes[0]


def test_codes_of_missing_values_stay_numbers_in_other_columns(tmp_path: Path) -> None:
    draws = np.random.default_rng(3)
    frame = pd.DataFrame({"grade": draws.choice([1, 2, 3, 9], N), "nodes": draws.integers(0, 15, N)})
    frame = frame.assign(lvef=np.where(frame.index % 9, draws.integers(20, 70, N), -1))
    frame = frame.assign(hb=draws.normal(13, 2, N).round(1).astype(str), days=np.arange(1, N + 1), died=1)
    frame.loc[::2, "died"] = 0
    frame.loc[[5, 8], "hb"] = "?"
    frame.to_csv(tmp_path / "c.csv", index=False)
    found = check(tmp_path / "c.csv", missing=["hb=?"])
    assert found.options.missing == ["hb=?", "grade=9", -1]
    read = load_file(tmp_path / "c.csv", **found.options.to_dict()).frame
    assert read.isna().sum().to_dict() == {
        "grade": (frame["grade"] == 9).sum(),
        "nodes": 0,
        "lvef": (frame["lvef"] == -1).sum(),
        "hb": 2,
    }
    np.testing.assert_array_equal(read["nodes"], frame["nodes"])
    frame = frame.drop(columns="hb")
    again = SurvivalData.from_frame(frame, time="days", event="died", missing=["grade=9", "lvef=-1"])
    assert again.frame["grade"].isna().sum() == (frame["grade"] == 9).sum()


def test_codes_of_an_event_that_cannot_be_guessed_are_named() -> None:
    frame = pd.DataFrame({"time": np.arange(1, 41), "status": [1, 2, 3, 2] * 10, "age": np.arange(40) % 7})
    assert any("'status' has the values 1, 2, 3: name the one of the event" in n for n in check(frame).notes)
    assert check(frame, cause="status", causes={1: "a", 3: "b"}).notes == ()
