"""The command `sstorch-predict`: what it writes is what Python predicts, and what it refuses."""

from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sstorch import (
    OptimalSurvivalTree,
    OptimalTreeRegressor,
    PrognosticTree,
    PrognosticTreeCV,
    Surv,
    SurvivalData,
)
from sstorch.calculator import main as calculator
from sstorch.exceptions import DataWarning
from sstorch.prediction import load_tree, main, predictions
from tests.conftest import nightly

TIMES = [365.0, 1825.0]


@pytest.fixture(scope="module")
def soft(gbsg2: SurvivalData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "run" / "model"
    PrognosticTree(depth=1, leaf="weibull").fit(gbsg2.frame, (gbsg2.time, gbsg2.event)).save(folder)
    return folder


@pytest.fixture
def cohort(gbsg2: SurvivalData, tmp_path: Path) -> Path:
    """Forty rows with other columns too, in another order, and a name for each."""
    frame = gbsg2.frame.iloc[:40, ::-1].assign(notes="seen", **{"Patient Nr.": [f"P{i}" for i in range(40)]})
    frame.loc[3, "age"] = np.nan
    path = tmp_path / "Kohorte ä.csv"
    frame.to_csv(path, index=False)
    return path


def _saved(kind: str, gbsg2: SurvivalData, soft: Path, folder: Path) -> Path:
    y = gbsg2.time, gbsg2.event
    if kind == "soft tree":
        return soft
    if kind == "run":
        return soft.parent
    if kind == "search":
        search = PrognosticTreeCV({"two": PrognosticTree(1, "weibull")}, cv=2)
        search.fit(gbsg2.frame, y).save(folder)
    else:
        OptimalSurvivalTree(max_depth=1, min_leaf=50).fit(gbsg2.frame, y).save(folder)
    return folder


@pytest.mark.parametrize("kind", ["soft tree", "run", "search", "exact tree"])
def test_what_is_written_is_what_python_predicts(
    kind: str,
    gbsg2: SurvivalData,
    soft: Path,
    cohort: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = _saved(kind, gbsg2, soft, tmp_path / "model")
    main([str(folder), str(cohort), "--times", "365", "1825", "--id", "Patient Nr."])
    table = pd.read_csv(StringIO(capsys.readouterr().out))
    assert list(table) == ["Patient Nr.", "group", "S(365)", "S(1825)", "median"]
    assert table["Patient Nr."].tolist() == [f"P{i}" for i in range(40)]
    tree, frame = load_tree(folder), pd.read_csv(cohort)
    np.testing.assert_array_equal(table["group"], tree.apply(frame))
    np.testing.assert_allclose(
        table[["S(365)", "S(1825)"]], tree.predict_survival_function(frame, TIMES), rtol=1e-12
    )
    np.testing.assert_allclose(table["median"], tree.predict_quantile(frame, 0.5), rtol=1e-12)


def test_a_file_is_written(
    soft: Path, cohort: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.csv"
    main([str(soft), str(cohort), "--out", str(out)])
    assert capsys.readouterr().out == f"done: 40 rows in {out}\n"
    table = pd.read_csv(out)
    assert list(table) == ["row", "group", "median"]
    assert table["row"].tolist() == list(range(1, 41))


@pytest.mark.filterwarnings("default::sstorch.exceptions.DataWarning")
def test_missing_values_decimal_commas_and_far_values(
    soft: Path,
    cohort: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    frame = pd.read_csv(cohort)
    path = tmp_path / "excel.csv"
    frame.to_csv(path, sep=";", decimal=",", na_rep="n.b.", index=False)
    plain = predictions(load_tree(soft), pd.read_csv(cohort), TIMES)
    main([str(soft), str(path), "--decimal", ",", "--missing", "n.b.", "--times", *map(str, TIMES)])
    pd.testing.assert_frame_equal(pd.read_csv(StringIO(capsys.readouterr().out)), plain)
    frame = pd.read_csv(cohort)
    frame.loc[7, "age"] = -999
    frame.loc[3] = np.nan
    frame.to_csv(path, index=False)
    main([str(soft), str(path)])
    err = capsys.readouterr().err
    assert err.startswith("sstorch-predict: note: column 'age' is -999 in 1 row (line 9), far outside its ")
    assert "note: 1 row (line 5) without any value of a feature: predictions are those of imputed" in err


def test_identifiers_of_a_text_file_stay_as_they_are(
    soft: Path, cohort: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.read_csv(cohort)[:3].assign(pid=["007", " 12345678901234567890", "1e5"])
    frame.to_csv(tmp_path / "c.csv", index=False)
    main([str(soft), str(tmp_path / "c.csv"), "--id", "pid"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == ["pid", "007", "12345678901234567890", "1e5"]


@pytest.mark.parametrize(
    ("change", "options", "told"),
    [
        (lambda f: f.drop(columns="age"), [], "cohort.csv: no column 'age'; the columns are "),
        (
            lambda f: f.rename(columns={"pnodes": "Pnodes"}),
            [],
            "no column 'pnodes'; .*Did you mean 'Pnodes'?",
        ),
        (lambda f: f.assign(age=["old", *f["age"][1:]]), [], "'age' .*'old'.* 1 row (line 2)"),
        (lambda f: f, ["--times", "-1"], "times must be finite and >= 0"),
        (lambda f: f, ["--id", "name"], "no column 'name'"),
        (lambda f: f, ["--time"], "expected at least one argument; see sstorch-predict --help"),
        (lambda f: f[:0], [], "the file has no rows below its header"),
    ],
)
def test_refusals(
    change: object,
    options: list[str],
    told: str,
    soft: Path,
    cohort: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "cohort.csv"
    change(pd.read_csv(cohort)).to_csv(path, index=False)  # type: ignore[operator]
    with pytest.raises(SystemExit) as stop:
        main([str(soft), str(path), *options])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sstorch-predict: error: ")
    for part in told.split(".*"):
        assert part in line


@pytest.mark.parametrize("kind", [nightly(PrognosticTree), OptimalSurvivalTree])
def test_competing_causes_give_incidences(
    kind: type, gbsg2: SurvivalData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cause = np.where(gbsg2.event, np.random.default_rng(0).integers(1, 3, len(gbsg2)), 0)
    X = gbsg2.frame[["age", "pnodes"]]
    options = {"depth": 1, "leaf": "weibull"} if kind is PrognosticTree else {"max_depth": 1}
    model = kind(**options).fit(X, Surv(gbsg2.time, cause, causes=("relapse", "death")))
    model.save(tmp_path / "model")
    X.to_csv(tmp_path / "rows.csv", index=False)
    main([str(tmp_path / "model"), str(tmp_path / "rows.csv"), "--times", *map(str, TIMES)])
    table = pd.read_csv(StringIO(capsys.readouterr().out))
    names = ["S(365)", "S(1825)", *(f"F({t:g}) {name}" for name in ("relapse", "death") for t in TIMES)]
    assert table.columns.tolist() == ["row", "group", *names]
    np.testing.assert_allclose(table[names[2:]], model.predict_cumulative_incidence(X, TIMES).reshape(-1, 4))
    np.testing.assert_allclose(table.filter(regex=r"\(1825\)").sum(axis=1), 1.0)
    X.assign(days=gbsg2.time, cause=cause).to_csv(tmp_path / "rows.csv", index=False)
    of_rows = ["--data", str(tmp_path / "rows.csv"), "--time", "days"]
    with pytest.raises(SystemExit):
        calculator([str(tmp_path / "model"), str(tmp_path / "page.html"), *of_rows, "--event", "cause"])
    assert "takes --cause, not --event: its causes compete" in capsys.readouterr().err
    calculator([str(tmp_path / "model"), str(tmp_path / "page.html"), *of_rows, "--cause", "cause"])
    names = np.array(["censored", "relapse", "death"])[cause]
    X.assign(days=gbsg2.time, cause=names).to_csv(tmp_path / "rows.csv", index=False)
    calculator([str(tmp_path / "model"), str(tmp_path / "named.html"), *of_rows, "--cause", "cause"])
    page = (tmp_path / "page.html").read_text()
    assert '"causes": ["relapse", "death"]' in page
    assert page == (tmp_path / "named.html").read_text()


def test_folders_that_hold_no_survival_tree(
    cohort: Path, gbsg2: SurvivalData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    OptimalTreeRegressor(max_depth=1).fit(gbsg2.frame, gbsg2.time).save(tmp_path / "mean")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "model.json").write_text("{}")
    for name, told in (
        ("nothing", "holds no saved tree: No such file"),
        ("broken", "is incomplete or altered"),
        ("mean", "holds a sstorch.optimal_tree_regressor, which predicts no survival"),
    ):
        with pytest.raises(SystemExit) as stop:
            main([str(tmp_path / name), str(cohort)])
        assert stop.value.code == 2
        assert told in capsys.readouterr().err


def test_median_beyond_the_last_training_event_is_infinite(gbsg2: SurvivalData, soft: Path) -> None:
    """No Kaplan-Meier estimate gives it either; only `extrapolate` asks the family of the leaf."""
    tree = load_tree(soft)
    assert isinstance(tree, PrognosticTree)
    last = tree.event_times_[-1]
    whole = tree.predict_quantile(gbsg2.frame, extrapolate=True)
    beyond = whole > last
    assert 0 < beyond.sum() < len(beyond)
    expected = np.where(beyond, np.inf, whole)
    np.testing.assert_array_equal(tree.predict_quantile(gbsg2.frame), expected)
    np.testing.assert_array_equal(predictions(tree, gbsg2.frame, [])["median"], expected)
    late = int(np.argmax(whole))
    assert "predicted median not reached" in str(tree.explain(gbsg2.frame.iloc[[late]]))
    # The time that is left ends with the last event, too; at 1/2 of S(after) it comes later than from zero.
    left, free = (tree.predict_quantile(gbsg2.frame, after=1000.0, extrapolate=e) for e in (False, True))
    np.testing.assert_array_equal(left, np.where(1000.0 + free > last, np.inf, free))


@pytest.mark.parametrize("after", [None, 2000.0])
def test_times_beyond_the_last_training_event_are_named(
    gbsg2: SurvivalData, soft: Path, after: float | None
) -> None:
    tree, rows = load_tree(soft), gbsg2.frame[:2]
    late = 9999 if after is None else 1000
    with pytest.warns(DataWarning, match=f"event is at {tree.event_times_[-1]:g}: .* at {late} are extrapol"):
        predictions(tree, rows, [365, late], after=after)
