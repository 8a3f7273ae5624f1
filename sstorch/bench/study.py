"""A study: every model on the same folds of every data set, task by task, resumable."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import pandas as pd
from filelock import BaseFileLock

from sstorch._types import IntArray
from sstorch._version import __version__
from sstorch.bench.cross_validation import make_folds
from sstorch.bench.engines import Engine, Failure
from sstorch.bench.scores import RowsToScore, Score, agreements, score_groups
from sstorch.bench.store import ResultStore, TaskKey
from sstorch.bench.study_model import Fit, StudyModel
from sstorch.data import Fold, Schema, SurvivalData
from sstorch.data.folds import split, train_outside_score_inside
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.files import unlock

_TARGET = ("time_", "event_", "entry_", "weight_")
# Increased when scores or folds change, so that stored results of another protocol are not reused.
_PROTOCOL_VERSION = 2
# How long to wait before looking again for tasks that another process is at, seconds.
_PAUSE = 2.0


class Source(Protocol):
    """A data set that can be loaded, also in another process."""

    @property
    def label(self) -> str:
        """Name of the data set in the results."""

    def load(self) -> SurvivalData:
        """Load the data set."""


@dataclass(frozen=True)
class StudyTask:
    """One model on all folds of one data set: what is computed and stored as a whole."""

    key: TaskKey
    source: Source
    digest: str  # checksum of the data, which must not change
    model: StudyModel
    n_folds: int
    seed: int


def plan(
    sources: Sequence[Source], models: Sequence[StudyModel], n_folds: int, seed: int, store: ResultStore
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
        digest, rows, data = data_checksum(data), np.flatnonzero(data.sample_weight), data.counted()
        folds_of[source.label] = rows, make_folds(data, n_folds, seed)
        for model in models:
            model.check_data(data)
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
    store.check_writable()
    for label, (rows, folds) in folds_of.items():
        file = store.path / "folds" / f"{label}.csv"
        file.parent.mkdir(exist_ok=True)
        pd.DataFrame({"row": rows, "fold": folds}).to_csv(file, index=False)
    return tasks


def data_checksum(data: SurvivalData) -> str:
    """Checksum of everything that a model sees of the rows."""
    # Of interval-censored times the middles, with the bounds below.
    parts = data.nominal_time, data.event, data.entry, data.sample_weight
    target = dict(zip(_TARGET, parts, strict=True))
    frame, extra = data.frame, dict[str, object]()
    if data.causes is not None:
        extra["causes"] = [dict(data.causes.coding), data.cause.tolist()]
    if data.intervals is not None:
        extra["intervals"] = [data.intervals.lower.tolist(), data.intervals.upper.tolist()]
    if data.subject is not None:
        extra["subject"] = data.subject.tolist()
    if any(name in frame for name in _TARGET):
        extra["features"] = _text(frame)
    schema = Schema.of(frame)
    # In text a category named "3.0" is the number 3, but it is another feature.
    words = {name: list(words) for name, words in schema.categories.items() if _could_be_numbers(words)}
    if words:
        extra["categories"] = words
    content = _text(frame.assign(**target)) + (json.dumps(extra, sort_keys=True) if extra else "")
    return hashlib.sha256(content.encode()).hexdigest()


def _text(frame: pd.DataFrame) -> str:
    return str(frame.to_csv(index=False))


def _could_be_numbers(words: Iterable[str]) -> bool:
    """True if all words look as numbers do in text."""
    try:
        return all(word == str(float(word)) for word in words)
    except ValueError:
        return False


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
    """The end of a task in this process: rows, which are stored, or a failure."""

    task: StudyTask
    seconds: float
    rows: pd.DataFrame | None = None
    failure: Failure | None = None


def run_tasks(
    tasks: Sequence[StudyTask], store: ResultStore, engine: Engine, report: Callable[[Outcome], None]
) -> list[Outcome]:
    """Carry out the tasks that are not in the store yet, along with other processes that do the same.

    A task that fails is reported and the others go on; it is tried again when the study is run again. Where
    results cannot be written, an OSError ends the study, and those that are there are untouched.

    Returns:
        The tasks that failed.
    """
    failed: list[Outcome] = []
    waiting = [task for task in tasks if not store.holds(task.key)]
    claims: dict[TaskKey, BaseFileLock] = {}

    def claimed(candidates: Sequence[StudyTask]) -> Iterator[StudyTask]:
        for task in candidates:
            if (claim := store.claim(task.key)) is not None:
                claims[task.key] = claim
                yield task

    try:
        while waiting:
            for task, result, seconds in engine.carry_out(execute, claimed(waiting)):
                if isinstance(result, Failure):
                    outcome = Outcome(task, seconds, failure=result)
                    failed.append(outcome)
                else:
                    store.write(task.key, *result)
                    outcome = Outcome(task, seconds, result[0])
                unlock(claims.pop(task.key))
                report(outcome)
            # What another process is at: ours if that one ends without having stored it.
            gone = [outcome.task for outcome in failed]
            waiting = [task for task in waiting if not store.holds(task.key) and task not in gone]
            if waiting:
                time.sleep(_PAUSE)
    finally:
        for claim in claims.values():
            unlock(claim)
    return failed


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
