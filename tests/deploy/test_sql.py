"""Queries of each database: what they compute, joined back by key, is what the tree predicts."""

import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest

from sstorch import SurvivalRegression
from sstorch.deploy import export_code
from sstorch.deploy.deployable import conditional_formula
from sstorch.deploy.dialects import DIALECTS, DialectName
from sstorch.deploy.sql import SQL
from sstorch.exceptions import ConfigError
from tests.conftest import nightly_but
from tests.deploy.test_causes import fitted, patients
from tests.deploy.test_code import Tree, exact, subjects, tree

TIMES = [30.0, 61.5]
MODELS: dict[str, Callable[[], Tree]] = {
    "soft": lambda: tree("log_normal"),
    "mixture": lambda: tree("weibull", "mixture"),
    "exact": exact,
    "causes": lambda: fitted("soft"),
    "exact causes": lambda: fitted("exact", "pbc"),
}
POSTGRES = Path("/usr/lib/postgresql")
Run = Callable[[pd.DataFrame, str], pd.DataFrame]


def by_sqlite(table: pd.DataFrame, query: str) -> pd.DataFrame:
    with closing(sqlite3.connect(":memory:")) as base:
        base.execute("ATTACH ':memory:' AS registry")
        table.to_sql("these rows", base, index=False)
        base.execute('CREATE TABLE registry."these rows" AS SELECT * FROM main."these rows"')
        return pd.read_sql(query, base)


def by_duckdb(table: pd.DataFrame, query: str) -> pd.DataFrame:
    base = pytest.importorskip("duckdb", reason="duckdb is not installed").connect()
    base.execute('CREATE SCHEMA registry; CREATE TABLE registry."these rows" AS SELECT * FROM "table"')
    return base.execute(query).df()


@pytest.fixture(scope="module")
def by_postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A server of its own, without a port."""
    found = sorted(POSTGRES.glob("*/bin/initdb"))
    if not found or shutil.which("runuser") is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(
        subprocess.check_output(["runuser", "-u", "postgres", "--", "mktemp", "-d"], text=True).strip()
    )

    def run(*command: str | Path, text: str | None = None) -> str:
        full = ["runuser", "-u", "postgres", "--", *command]
        done = subprocess.run(full, input=text, capture_output=True, text=True, cwd="/", check=False)
        assert done.returncode == 0, done.stderr[:2000]
        return done.stdout

    control = [found[-1].parent / "pg_ctl", "-D", folder / "data", "-l", folder / "log", "-w"]
    run(found[-1], "-D", folder / "data", "-E", "UTF8", "--no-sync")
    run(*control, "-o", f"-k {folder} -c listen_addresses='' -c fsync=off", "start")

    def answer(table: pd.DataFrame, query: str) -> pd.DataFrame:
        types = {"f": "DOUBLE PRECISION", "i": "INTEGER", "b": "BOOLEAN"}
        columns = [
            f'"{name.replace(chr(34), 2 * chr(34))}" {types.get(column.dtype.kind, "TEXT")}'
            for name, column in table.items()
        ]
        create = "DROP SCHEMA IF EXISTS registry CASCADE; CREATE SCHEMA registry;\n"
        create += f'CREATE TABLE registry."these rows" ({", ".join(columns)});\n'
        rows = f'COPY registry."these rows" FROM STDIN CSV;\n{table.to_csv(index=False, header=False)}\\.\n'
        psql = ["psql", "-h", folder, "-d", "postgres", "-q", "--csv", "-v", "ON_ERROR_STOP=1"]
        return pd.read_csv(StringIO(run(*psql, text=create + rows + query)))

    yield answer
    run(*control, "-m", "immediate", "stop")
    shutil.rmtree(folder)


def check(name: str, dialect: DialectName, run: Run, after: float | None = None) -> None:
    model = MODELS[name]()
    frame = patients("mgus2" if name == "causes" else "pbc") if model.causes_ else subjects(60, 3).frame
    if name == "causes" and not after:  # hazards become infinite
        frame = frame.assign(creat=frame["creat"].where(frame.index != 9, -1e6))
    rng = np.random.default_rng(0)
    shuffled = frame.assign(v1=rng.normal(size=len(frame)), site="a", pid=rng.permutation(len(frame)))
    shuffled = shuffled.sample(frac=1, random_state=1)
    key, table = ["site", "pid"], 'registry."these rows"'
    query = export_code(model, "sql", horizon=TIMES, after=after, dialect=dialect, table=table, key=key)
    found = run(shuffled, query)
    assert [*found.columns[:3]] == [*key, "predicted_group"]
    joined = shuffled[["pid"]].merge(found.sample(frac=1, random_state=2), on="pid", validate="one_to_one")
    rows = shuffled[frame.columns]
    np.testing.assert_array_equal(joined["predicted_group"], model.apply(rows))
    expected = model.predict_survival_function(rows, TIMES, after=after)
    np.testing.assert_allclose(joined[[f"predicted_survival_{t:g}" for t in TIMES]], expected, atol=1e-9)
    if model.causes_:
        curves = model.predict_cumulative_incidence(rows, TIMES, after=after)
        for k, cause in enumerate(model.causes_):
            names = [f"predicted_incidence_{cause}_{t:g}" for t in TIMES]
            np.testing.assert_allclose(joined[names], curves[:, k], atol=1e-9)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("run", [by_sqlite, by_duckdb])
@pytest.mark.parametrize("name", MODELS)
def test_rows_joined_by_key_have_their_predictions(name: str, run: Run) -> None:
    check(name, "sqlite" if run is by_sqlite else "duckdb", run)


def test_boolean_column_of_postgresql_is_a_number() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"smoker": rng.random(80) < 0.4, "age": rng.normal(60, 9, 80)})
    time = rng.exponential(5, 80) * np.where(frame["smoker"], 0.2, 1)
    model = SurvivalRegression("exponential").fit(frame, (time, rng.random(80) < 0.7))
    query = export_code(model, "sql", horizon=2, dialect="postgresql", table='registry."these rows"')
    # DuckDB reads it, too, yet casts truth values, which PostgreSQL does not.
    found = by_duckdb(frame, query)["predicted_survival"]
    np.testing.assert_allclose(found, model.predict_survival_function(frame, 2)[:, 0], atol=1e-12)
    assert 'CAST(REPLACE(REPLACE(CAST("smoker" AS TEXT)' in query


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", MODELS)
def test_postgresql_gives_the_predictions(name: str, by_postgresql: Run) -> None:
    check(name, "postgresql", by_postgresql)
    if name == "causes":
        check(name, "postgresql", by_postgresql, after=24.0)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "dialect", nightly_but({"tsql", "mysql", "oracle", "bigquery"}, get_args(DialectName))
)
def test_queries_parse_in_their_dialect(dialect: DialectName) -> None:
    sqlglot = pytest.importorskip("sqlglot", reason="sqlglot is not installed")
    for model in (MODELS["mixture"](), MODELS["causes"]()):
        query = export_code(
            model, "sql", horizon=TIMES, dialect=dialect, key="pid", table="a.subjects", after=1.0
        )
        (parsed,) = sqlglot.parse(query, read={"postgresql": "postgres"}.get(dialect, dialect))
        names = [each.lower() for each in parsed.named_selects]
        assert names[:3] == ["pid", "predicted_group", "predicted_survival_30"]


@pytest.mark.nightly
def test_incidences_without_a_key_in_a_dialect_that_may_renumber_rows_raise() -> None:
    for dialect in ("tsql", "mysql", "oracle", "bigquery"):
        with pytest.raises(ConfigError, match="key must name the columns"):
            export_code(fitted("soft"), "sql", horizon=12.0, dialect=dialect)  # type: ignore[arg-type]


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_incidences_by_a_key_that_is_not_unique_are_null() -> None:
    """The form that joins by key, run in DuckDB as a database that evaluates nothing once."""
    base = pytest.importorskip("duckdb", reason="duckdb is not installed").connect()
    model = fitted("soft")
    frame = patients("mgus2").assign(pid=range(40))
    frame.loc[frame.index[7], "pid"] = 6
    plain = replace(DIALECTS["duckdb"], once="AS", evaluates_once=False, has_values=False)
    query = SQL(plain).source(conditional_formula(model, None), "test", {"": 60.0}, "frame", ["pid"])
    base.register("frame", frame)
    found = base.execute(query).df().sort_values("pid", kind="stable")
    expected = model.predict_cumulative_incidence(frame.drop(columns="pid"), 60.0)[:, 0, 0]
    expected[[6, 7]] = np.nan
    np.testing.assert_allclose(found["predicted_incidence_progression"], expected, atol=1e-9)
