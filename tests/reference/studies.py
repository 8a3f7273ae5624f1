"""Runs of the command line, and the tasks that studies plan."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra

from sstorch.bench import ResultStore
from sstorch.bench.cli import main, study_models
from sstorch.bench.config import DatasetConfig
from sstorch.bench.study import plan
from sstorch.exceptions import SstorchError
from tests.app import compose
from tests.reference.exact_text import files_of, sha
from tests.reference.models import cohort

Entry = dict[str, Any]
Case = Callable[[], Entry]

# What varies from run to run in the facts of a task.
VARYING = ("seconds", "versions", "finished")
# All that a default could set otherwise is given: the record is of results.
EXPLICIT = [
    "dataset=csv",
    "dataset.time=days",
    "dataset.event=died",
    "cv=three_folds",
    "cv.seed=0",
    "seed=0",
    "threads=1",
    "logger=none",
]
TREE = (
    "_target_: sstorch.SoftSurvivalTree, trainer: joint, n_starts: 2, columns: {_target_: sstorch.Columns, "
    "numeric: linear}, penalties: {_target_: sstorch.GatePenalties, ridge: 0.001, gate_ridge: "
)
STUDY = [
    "experiment=own",
    f"+study.models.exp={{{TREE}0.0001}}, leaf: exponential, init: random, depth: [0, 1]}}",
    f"+study.models.po={{{TREE}0.01}}, leaf: {{_target_: sstorch.nn.Spline, scale: odds, knots: 2}}, "
    "init: cox, depth: 1}",
    "study.only=[exp,po,kaplan_meier,cox]",
]
MODEL = [
    "model.depth=1",
    "model.leaf=log_logistic",
    "model.init=random",
    "model.n_starts=2",
    "model.trainer={_target_: sstorch.optim.Joint}",
    "model.columns.numeric=linear",
    "model.penalties.ridge=0.001",
    "model.penalties.gate_ridge=0.0001",
]
# Files of a run that hold no durations, dates or paths.
RUN_FILES = ("scores.csv", "summary.csv", "folds.csv", "leaf_groups.csv", "tree.txt")
PLANNED = ("paper", "paper_quick")


def app(*overrides: str) -> str:
    """Run the command in this process; what it prints.

    Raises:
        RuntimeError: it ends with another exit code than 0.
    """
    GlobalHydra.instance().clear()
    before, printed = sys.argv, io.StringIO()
    sys.argv = ["sstorch", *overrides]
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            main()
    except SystemExit as stop:
        if stop.code:
            raise RuntimeError(f"sstorch ended with {stop.code}: {printed.getvalue()[-2000:]}") from stop
    finally:
        sys.argv = before
    return printed.getvalue()


def _file(folder: Path, name: str, first: int, last: int) -> str:
    """Some rows of the cohort as a file; the option that names it."""
    columns = ["age", "marker", "stage", "smoker", "sex", "time", "event"]
    rows = cohort()[columns].rename(columns={"time": "days", "event": "died"})
    file = folder / f"{name}.csv"
    rows.assign(died=rows["died"].astype(int)).iloc[first:last].to_csv(file, index=False)
    return f"dataset.path={file}"


def study() -> Entry:
    """A study of two small data sets: tasks, their results, and the means that are printed."""
    entry: Entry = {}
    with tempfile.TemporaryDirectory() as root:
        for name, rows in {"first": (0, 120), "second": (30, 110)}.items():
            folder = Path(root) / name
            file = _file(Path(root), name, *rows)
            shared = [*EXPLICIT, *STUDY, file, f"study.folder={folder}"]
            app(*shared)
            again = app(*shared).splitlines()
            entry[f"{name}: again"] = next(line for line in again if line.startswith("tasks")).split(
                " are in "
            )[0]
            store = ResultStore(folder)
            table = store.table()
            groups = table.groupby(["dataset", "model", "depth", "config"], dropna=False, sort=True)
            for (_, model, depth, config), part in groups:
                key = f"{name}: {model} depth {depth}"
                entry[f"{key}, config"] = str(config)
                ordered = part.sort_values([name for name in part.columns if name != "value"], kind="stable")
                for metric, rows_of_metric in ordered.groupby("metric"):
                    entry[f"{key}, {metric}"] = rows_of_metric["value"].to_numpy(float)
            for facts in store.facts():
                plain = {key: value for key, value in facts.items() if key not in VARYING}
                key = f"{name}: {facts['model']} depth {facts['depth']}, facts"
                entry[key] = sha(json.dumps(plain, sort_keys=True))
            entry |= {
                f"{name}: {file.name}": sha(file.read_bytes())
                for file in sorted((folder / "folds").iterdir())
            }
    return entry


def run(*overrides: str) -> Entry:
    """A run of one data set: the files that it leaves behind."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "run"
        app(*EXPLICIT, *MODEL, _file(Path(root), "cohort", 0, 120), f"hydra.run.dir={folder}", *overrides)
        entry = {name: sha((folder / name).read_bytes()) for name in RUN_FILES if (folder / name).exists()}
        return entry | {f"model/{name}": text for name, text in files_of(folder / "model").items()}


def planned(experiment: str) -> Entry:
    """The tasks that a shipped experiment plans, by data set: model, depth and digest of the settings."""
    config = compose(f"experiment={experiment}")
    assert config.study is not None
    entry: Entry = {}
    with warnings.catch_warnings(record=True) as caught, tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("always")
        models = study_models(config, config.study)
        for name in sorted(config.study.datasets or ()):
            try:
                tasks = plan(
                    [DatasetConfig(name)], models, config.cv.n_folds, config.cv.seed, ResultStore(folder)
                )
            except SstorchError as error:
                entry[name] = f"not planned: {error}".replace(sys.executable, "python")
                continue
            keys = [task.key for task in tasks]
            entry[name] = " ".join(f"{key.model}/{key.depth}={key.config}" for key in keys)
            entry[f"{name}, folds"] = sha((Path(folder) / "folds" / f"{name}.csv").read_bytes())
    left_out = sorted({str(item.message) for item in caught if "is left out" in str(item.message)})
    return entry | {f"left out {number}": text for number, text in enumerate(left_out)}


STUDIES: dict[str, Case] = {
    "study of two data sets": study,
    "run": run,
    "run, fairness": partial(
        run,
        "model.penalties.fairness=l2_relaxed",
        "dataset.sensitive=sex",
        "model.penalties.rho=0.1",
        "model.depth=2",
    ),
    **{f"planned, {name}": partial(planned, name) for name in PLANNED},
}
