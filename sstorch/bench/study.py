"""A study: every model on the same folds of every data set, task by task, resumable."""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed

from sstorch._version import __version__
from sstorch.bench.config import Config, DatasetConfig, StudyConfig
from sstorch.bench.cross_validation import data_checksum, make_folds
from sstorch.bench.models import Fit, StudyModel, models_of
from sstorch.bench.report.results import Results
from sstorch.bench.report.study import as_text, average_table
from sstorch.bench.scores import CURVE_SCORES, TRAIN_SCORES, printed, score_fits
from sstorch.bench.store import ResultStore, TaskKey
from sstorch.checks import check_device, nearest_text
from sstorch.data import Schema
from sstorch.data.folds import split
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.files import write_whole
from sstorch.threads import one_blas_thread, torch_threads

# Increased when scores or folds change, so that stored results of another protocol are not reused.
_PROTOCOL_VERSION = 3


@dataclass(frozen=True)
class StudyTask:
    """One model on all folds of one data set: what is computed and stored as a whole."""

    key: TaskKey
    source: DatasetConfig
    digest: str  # checksum of the data, which must not change
    model: StudyModel
    n_folds: int
    seed: int


def plan(
    sources: Sequence[DatasetConfig],
    models: Sequence[StudyModel],
    n_folds: int,
    seed: int,
    store: ResultStore,
) -> list[StudyTask]:
    """All tasks of a study; what cannot be run raises here. Folds are written to the store."""
    names = [(model.name, model.depth) for model in models]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"the study has two models {min(twice, key=str)}; give each a different name")
    if not sources or not models:
        raise ConfigError("the study has nothing to do: name data sets, and soft trees or baselines")
    tasks, folds_of = [], {}
    for source in sources:
        data = source.load()
        data.refuse_intervals("a study")
        digest, rows, data = data_checksum(data), np.flatnonzero(data.sample_weight), data.counted()
        folds_of[source.label] = pd.DataFrame({"row": rows, "fold": make_folds(data, n_folds, seed)})
        for model in models:
            try:
                model.check_data(data)
            except (ConfigError, DataError) as error:
                raise type(error)(f"{model.name}: {error}") from error
            protocol = {"protocol": _PROTOCOL_VERSION, "data": digest, "n_folds": n_folds, "seed": seed}
            shaping = {**protocol, "n_starts": model.n_starts, "model": model.settings()}
            config = hashlib.sha256(json.dumps(shaping, sort_keys=True).encode()).hexdigest()[:12]
            key = TaskKey(source.label, model.name, model.depth, config)
            tasks.append(StudyTask(key, source, digest, model, n_folds, seed))
    for label, table in folds_of.items():
        file = store.path / "folds" / f"{label}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, table.to_csv(index=False).encode())
    return tasks


def execute(task: StudyTask, device: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Fit and score one task; its rows and its facts, as :meth:`ResultStore.write` takes them."""
    model, data = task.model, task.source.load()
    if data_checksum(data) != task.digest:
        raise DataError(f"{task.source.label} has changed since the study was begun; run it again")
    data = data.counted()
    parts = split(data, make_folds(data, task.n_folds, task.seed))
    names, spent = {"train": TRAIN_SCORES, "test": CURVE_SCORES}, list[float]()
    begin = time.perf_counter()
    with warnings.catch_warnings():
        # Of the data alone, such as few events: each fold would repeat them.
        warnings.simplefilter("ignore", DataWarning)
        fits = model.fits([part.train for part in parts], Schema.of(data.frame), device)
        fits = _timed(fits, spent)
        rows = score_fits(fits, data, parts, names, thin=True, groups=model.depth != 0)
    scoring = time.perf_counter() - begin - sum(spent)
    facts = {
        "settings": model.settings(),
        "seconds": {"fit": round(sum(spent), 3), "score": round(scoring, 3)},
        "versions": {"sstorch": __version__, "numpy": np.__version__, **model.versions()},
        "device": device,
        "n_folds": task.n_folds,
        "n_starts": model.n_starts,
        "seed": task.seed,
        "data": task.digest,
        "finished": datetime.now(UTC).isoformat(timespec="microseconds"),
    }
    return rows, facts


def _timed(fits: Iterator[Fit], spent: list[float]) -> Iterator[Fit]:
    """Pass fits on, and note the seconds that each takes."""
    while True:
        begin = time.perf_counter()
        fit = next(fits, None)
        spent.append(time.perf_counter() - begin)
        if fit is None:
            return
        yield fit


@dataclass(frozen=True)
class Outcome:
    """The end of a task: its rows, which are stored, or why there are none."""

    task: StudyTask
    seconds: float
    rows: pd.DataFrame | None = None
    error: str = ""  # in one line
    traceback: str = ""


def devices_of(name: str, n_jobs: int) -> list[str]:
    """The devices of as many concurrent tasks; of "cuda" one GPU each, and no more tasks than GPUs."""
    if n_jobs < 1:
        raise ConfigError(f"`study.n_jobs` must be at least 1, got {n_jobs}")
    check_device(name)
    if name != "cuda":
        return [name] * n_jobs
    return [f"cuda:{number}" for number in range(min(n_jobs, torch.cuda.device_count()))]


def run_tasks(
    tasks: Sequence[StudyTask],
    store: ResultStore,
    devices: Sequence[str],
    report: Callable[[Outcome], None],
) -> list[Outcome]:
    """Carry out the tasks that are not in the store yet, as many at a time as devices; those that failed.

    Each has one thread. A task that fails is reported, the others go on, and it is tried again when the study
    is run again. Where results cannot be written, an OSError ends the study; those that are there stay.
    """
    left = [task for task in tasks if not store.holds(task.key)]
    pool = Parallel(len(devices), backend="loky", batch_size=1, return_as="generator_unordered")
    turns = (delayed(_carry_out)(task, store, devices[k % len(devices)]) for k, task in enumerate(left))
    failed: list[Outcome] = []
    for outcome in pool(turns):
        failed += [outcome] * (outcome.rows is None)
        report(outcome)
    return failed


def _carry_out(task: StudyTask, store: ResultStore, device: str) -> Outcome:
    """Execute and store a task; results are the same on every machine of a kind."""
    begin = time.perf_counter()
    try:
        with torch_threads(1), one_blas_thread():
            rows, facts = execute(task, device)
    except Exception as error:  # reported; the other tasks go on
        text = f"{type(error).__name__}: {error}"
        return Outcome(task, time.perf_counter() - begin, error=text, traceback=traceback.format_exc())
    store.write(task.key, rows, facts)
    return Outcome(task, time.perf_counter() - begin, rows)


# ---------------------------------------------------------------------- the command


def run_study(config: Config, study: StudyConfig, config_text: str) -> int:
    """Carry out a study, or what is left of it; the number of tasks that failed."""
    if config.dataset.sensitive is not None:
        raise ConfigError("a study has no sensitive groups: leave dataset.sensitive out")
    sources = [config.dataset] if study.datasets is None else [DatasetConfig(name) for name in study.datasets]
    store, models = ResultStore(study.folder), study_models(config, study)
    devices = devices_of(config.device, study.n_jobs)
    begin = time.perf_counter()
    tasks = plan(sources, models, config.cv.n_folds, config.cv.seed, store)
    write_whole(store.path / "config.yaml", config_text.encode())
    n_left = sum(not store.holds(task.key) for task in tasks)
    print(f"study    {len(sources)} data sets x {len(models)} models on {config.cv.n_folds} folds")
    print(f"tasks    {len(tasks)}, of which {len(tasks) - n_left} are in {store.path}", flush=True)
    numbers = itertools.count(1)

    def report(outcome: Outcome) -> None:
        text = f"[{next(numbers)}/{n_left}] {outcome.task.key}: "
        if outcome.rows is None:
            print(f"{text}FAILED, {outcome.error}\n{outcome.traceback}", file=sys.stderr, flush=True)
            return
        test = outcome.rows[outcome.rows["part"] == "test"].groupby("metric")["value"].mean().dropna()
        scores = ", ".join(f"{name} {test[metric]:.3f}" for metric, name in printed(test.index).items())
        print(f"{text}{scores} in {outcome.seconds:.1f} s", flush=True)

    failed = run_tasks(tasks, store, devices, report)
    if len(failed) < len(tasks):
        table = store.table()
        own = table["config"].isin({task.key.config for task in tasks})
        results = Results(table[own & table["metric"].isin(printed(table["metric"].unique()))], store.facts())
        print(f"\n{as_text(average_table(results))}\n")
    for outcome in failed:
        print(f"failed   {outcome.task.key}: {outcome.error}")
    state = (
        f"{len(failed)} of {len(tasks)} tasks failed; run it again to try them again" if failed else "done"
    )
    seconds = time.perf_counter() - begin
    print(f"{state}: {len(tasks) - len(failed)} tasks are in {store.path}; {seconds:.0f} s")
    return len(failed)


def study_models(config: Config, study: StudyConfig) -> list[StudyModel]:
    """The models of a study, in the order of its configuration."""
    known = list(study.models)
    wanted = known if study.only is None else study.only
    for name in wanted:
        if name not in known:
            near = nearest_text(name, known)
            raise ConfigError(f"study.only: no model {name!r} in {', '.join(known)}.{near}")
    nodes = {name: study.models[name] for name in known if name in wanted}
    made = [models_of(name, node, config.seed, f"study.models.{name}") for name, node in nodes.items()]
    return [model for models in made for model in models]
