"""A study: every model on the same folds of every data set, task by task, resumable."""

from __future__ import annotations

import hashlib
import json
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed

from sstorch._types import IntArray
from sstorch._version import __version__
from sstorch.bench.config import DatasetConfig
from sstorch.bench.cross_validation import make_folds
from sstorch.bench.scores import RowsToScore, Score, agreements, score_groups
from sstorch.bench.store import ResultStore, TaskKey
from sstorch.bench.study_model import Fit, StudyModel
from sstorch.checks import check_device
from sstorch.data import Schema, SurvivalData
from sstorch.data.folds import Fold, split, train_outside_score_inside
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.files import write_whole
from sstorch.optim.checkpoint import plain_values
from sstorch.threads import one_blas_thread, torch_threads

# Increased when scores or folds change, so that stored results of another protocol are not reused.
_PROTOCOL_VERSION = 2


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
    """All tasks of a study: every model on every data set; what can be refused is refused here.

    The folds, stratified by event with this seed, are written to the store.
    """
    names = [(model.name, model.depth) for model in models]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"the study has two models {min(twice, key=str)}; give each a different name")
    if not sources or not models:
        raise ConfigError("the study has nothing to do: name data sets, and soft trees or baselines")
    for model in models:
        model.check()
    tasks, folds_of = [], {}
    for source in sources:
        data = source.load()
        data.refuse_intervals("a study")
        digest, rows, data = data_checksum(data), np.flatnonzero(data.sample_weight), data.counted()
        folds_of[source.label] = rows, make_folds(data, n_folds, seed)
        for model in models:
            try:
                model.check_data(data)
            except (ConfigError, DataError) as error:
                raise type(error)(f"{model.name}: {error}") from error
            shaping = {
                "protocol": _PROTOCOL_VERSION,
                "data": digest,
                "n_folds": n_folds,
                "seed": seed,
                "n_starts": model.n_starts,
                "model": model.settings(),
            }
            text = json.dumps(shaping, sort_keys=True)
            config = hashlib.sha256(text.encode()).hexdigest()[:12]
            key = TaskKey(source.label, model.name, model.depth, config)
            tasks.append(StudyTask(key, source, digest, model, n_folds, seed))
    for label, (rows, folds) in folds_of.items():
        file = store.path / "folds" / f"{label}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, pd.DataFrame({"row": rows, "fold": folds}).to_csv(index=False).encode())
    return tasks


def data_checksum(data: SurvivalData) -> str:
    """Checksum of everything that a model sees of the rows."""
    seen = {
        "features": data.frame,
        "outcome": [data.nominal_time, data.event, data.entry, data.sample_weight, data.subject],
        "causes": None if data.causes is None else [data.causes, data.cause],
    }
    return hashlib.sha256(json.dumps(list(plain_values(seen, "data"))).encode()).hexdigest()


def execute(task: StudyTask, device: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Fit and score one task; its rows and its facts, as :meth:`ResultStore.write` takes them."""
    data = _data_of(task)
    folds = make_folds(data, task.n_folds, task.seed)
    fits: list[dict[str, Any]] = []
    groups: list[tuple[dict[str, Any], IntArray]] = []
    score_seconds = 0.0

    def train(splits: list[SurvivalData]) -> Iterator[tuple[int, Fit]]:
        for fit in task.model.fits(splits, Schema.of(data.frame), device):
            yield fit.fold, fit

    @lru_cache(maxsize=1)  # the fits of a fold come one after the other
    def parts_of(fold: Fold) -> dict[str, RowsToScore]:
        parts = fold.parts.items()
        return {part: RowsToScore(rows, fold.train, thin=part == "train") for part, rows in parts}

    def score(fold: Fold, fit: Fit) -> list[dict[str, object]]:
        nonlocal score_seconds
        begin = time.perf_counter()
        about = {"fold": fit.fold, "start": fit.start, "chosen": fit.chosen}
        if fit.facts:
            fits.append({"fold": fit.fold, "start": fit.start, **fit.facts})
        rows: list[dict[str, object]] = []
        for part, to_score in parts_of(fold).items():
            scores = to_score.scores(fit.predictor)
            if part == "train" and fit.objective is not None:
                scores["objective"] = Score(fit.objective)
            rows += _in_rows({**about, "part": part}, scores)
        apply = getattr(fit.predictor, "apply", None)
        if apply is not None and task.model.depth != 0:
            group = apply(data.frame)
            groups.append((about, group))
            found = score_groups(group[fold.inside], fold.test, group[~fold.inside], fold.train)
            rows += _in_rows({**about, "part": "test"}, found)
        score_seconds += time.perf_counter() - begin
        return rows

    with warnings.catch_warnings():
        # Curves of unconstrained splines that rise; the study scores their running minimum.
        warnings.simplefilter("ignore", DataWarning)
        begin = time.perf_counter()
        fitted = train_outside_score_inside(split(data, folds), train, score)
        rows = [row for of_fit in fitted for row in of_fit]
        fit_seconds = time.perf_counter() - begin - score_seconds
        begin = time.perf_counter()
        found = agreements(
            [about["start"] for about, _ in groups],
            [about["chosen"] for about, _ in groups],
            [group for _, group in groups],
        )
        for (about, _), agreement in zip(groups, found, strict=True):
            rows += _in_rows({**about, "part": "test"}, {"ari": agreement})
        score_seconds += time.perf_counter() - begin
    facts = {
        "settings": task.model.settings(),
        "seconds": {"fit": round(fit_seconds, 3), "score": round(score_seconds, 3)},
        "versions": {"sstorch": __version__, "numpy": np.__version__, **task.model.versions()},
        "device": device,
        "n_folds": task.n_folds,
        "n_starts": task.model.n_starts,
        "seed": task.seed,
        "data": task.digest,
        "finished": datetime.now(UTC).isoformat(timespec="microseconds"),
        **({"fits": fits} if fits else {}),
    }
    return pd.DataFrame(rows), facts


def _in_rows(about: Mapping[str, object], scores: Mapping[str, Score]) -> list[dict[str, object]]:
    return [
        {**about, "metric": name, "value": value, "reason": reason}
        for name, (value, reason) in scores.items()
    ]


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
        raise ConfigError(f"study.n_jobs must be at least 1, got {n_jobs}")
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
    """Carry out the tasks that are not in the store yet, as many at a time as devices, which take turns.

    Each has one thread. A task that fails is reported, the others go on, and it is tried again when the study
    is run again. Where results cannot be written, an OSError ends the study; those that are there stay.

    Returns:
        The tasks that failed.
    """
    left = [task for task in tasks if not store.holds(task.key)]
    pool = Parallel(len(devices), backend="loky", batch_size=1, return_as="generator_unordered")
    failed: list[Outcome] = []
    for outcome in pool(
        delayed(_carry_out)(task, store, devices[number % len(devices)]) for number, task in enumerate(left)
    ):
        if outcome.rows is None:
            failed.append(outcome)
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


# The data of the task before, which the next one mostly needs again.
_loaded: dict[str, SurvivalData] = {}


def _data_of(task: StudyTask) -> SurvivalData:
    if task.digest not in _loaded:
        data = task.source.load()
        if data_checksum(data) != task.digest:
            raise DataError(f"{task.source.label} has changed since the study was begun; run it again")
        _loaded.clear()
        _loaded[task.digest] = data.counted()
    return _loaded[task.digest]
