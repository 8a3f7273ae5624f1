"""The ``sstorch`` command: one Hydra app that carries out a run or a study."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

import hydra
import pandas as pd
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sstorch.bench import CrossValidation, ResultStore, cross_validate, make_folds
from sstorch.bench.arguments import as_hydra_takes, refusal_text, setting_word
from sstorch.bench.callbacks import HistoryWriter, write_choice
from sstorch.bench.config import (
    Config,
    DatasetConfig,
    StudyConfig,
    build,
    config_path,
    register_schemas,
    to_config,
)
from sstorch.bench.cross_validation import held_out_score, split_names
from sstorch.bench.peers import peer_table, score_run
from sstorch.bench.report.results import Results
from sstorch.bench.report.tables import as_text, average_table
from sstorch.bench.run_folder import RunFolder, versions, without_logger
from sstorch.bench.scores import GROUP_SCORES
from sstorch.bench.study import Outcome, StudyTask, data_checksum, devices_of, plan, run_tasks
from sstorch.bench.study_model import SoftTreeModel, StudyModel, as_model, models_of
from sstorch.checks import nearest_text
from sstorch.data import SurvivalData
from sstorch.exceptions import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_REFUSED,
    ConfigError,
    JobError,
    SstorchError,
    exit_codes,
    print_refusal,
    show_warnings_as_notes,
)
from sstorch.files import write_whole
from sstorch.metrics.registry import METRICS, names_of
from sstorch.monitoring import Callback, History, ProgressBar, TensorBoard
from sstorch.optim.checkpoint import opened, plain_values
from sstorch.progress import Lines, Progress, Watch, report
from sstorch.soft.batch import events_of_causes
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.settings import BatchSettings
from sstorch.threads import FEW

# What is reported in one line; anything else is a defect and keeps its traceback.
REFUSALS = (SstorchError, HydraException, OmegaConfBaseException, OSError)

# Metrics that are printed of every task, and of every model at the end; those of groups if any.
_PRINTED = {name: "C" if METRICS[name].higher_is_better else "IBS" for name in names_of(tag="headline")}
_PRINTED_OF_GROUPS = {"c_groups": "C groups", "n_groups": "groups", "ari": "ARI"}

# Whoever sets Hydra's variable wants tracebacks of refusals too.
_debugging = "HYDRA_FULL_ERROR" in os.environ

register_schemas()


def main() -> None:
    """Entry point of the ``sstorch`` command.

    Exit code 0; 1 if tasks of a study failed, 2 if refused with one line, 130 if interrupted. A sweep
    continues after a failed job, and ends with the exit code of the first that failed.
    """
    # A scheduler's request to stop is treated as Ctrl-C is.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Hydra's own refusals come here instead of being printed at length.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        with exit_codes("sstorch", () if _debugging else REFUSALS):
            _compose_and_run()
    finally:
        if not _debugging:
            del os.environ["HYDRA_FULL_ERROR"]


def _compose_and_run() -> None:
    typed = sys.argv
    try:
        sys.argv = [typed[0], *as_hydra_takes(typed[1:])]
        _app()
    except HydraException as error:
        raise ConfigError(refusal_text(error)) from error
    except AssertionError as error:
        # The message of Hydra for settings of a study that is null.
        if "Unexpected type for root" not in str(error):
            raise
        raise ConfigError(
            "a setting of study was given, but no study: choose one with experiment=NAME; --help lists them"
        ) from error
    finally:
        sys.argv = typed


@hydra.main(version_base="1.3", config_path=config_path(), config_name="config")
def _app(composed: DictConfig) -> float | None:
    """One job; returns the mean held-out score of a run, by which sweepers choose."""
    show_warnings_as_notes("sstorch")
    folder = RunFolder(Path(HydraConfig.get().runtime.output_dir))
    try:
        config, text = to_config(composed), OmegaConf.to_yaml(composed, resolve=True)
        if config.study is None:
            return run(config, text, folder)
        if config.study.datasets is not None and (unread := _dataset_overrides()):
            raise ConfigError(
                f"{unread} would not be read: study.datasets names the data sets. Leave it out, or set "
                "study.datasets=null"
            )
        if run_study(config, config.study, text):
            _end_job(EXIT_FAILED)
        return None
    except KeyboardInterrupt:
        print(f"\nsstorch: {_interruption_text(folder, composed.study is not None)}", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except JobError:
        raise
    except Exception as error:
        # The status has no room either where the disk is full: what is reported is the first error.
        with suppress(OSError):
            folder.end_early("failed", error=str(error) or repr(error))
        if isinstance(error, REFUSALS) and not _debugging:
            place = "" if getattr(error, "filename", "") is not None else f"{folder.path}: "
            print_refusal("sstorch", error, f"{_job_text() if _is_swept() else ''}{place}")
            _end_job(EXIT_REFUSED)
        if _is_swept():  # of several, Hydra would show the first alone
            traceback.print_exc()
            print(f"sstorch: error: {_job_text()}failed unexpectedly, see above", file=sys.stderr)
            raise JobError(EXIT_FAILED) from error
        raise


def run(config: Config, config_text: str, folder: RunFolder) -> float:
    """Carry out a run, or continue it, unless the folder holds it, completed; the mean held-out score.

    What cannot be run raises an SstorchError before anything is written.
    """
    lines = Lines() if config.logger.progress else None

    def note(progress: Progress) -> None:
        folder.note(progress)
        if lines is not None:
            lines(progress)

    with Watch(note):
        return _run(config, config_text, folder)


def _run(config: Config, config_text: str, folder: RunFolder) -> float:
    estimator, cv = build(config.model, "model"), config.cv
    model = as_model("model", estimator, config.seed, "model")
    settings = estimator._batch_settings() if isinstance(estimator, SoftEstimator) else None
    peers = _peers(config, estimator) if cv.peers else []
    own = [_callback(node, f"callbacks.{name}") for name, node in (config.callbacks or {}).items()]
    report("reading", 0, 1)
    data = config.dataset.load()
    data.refuse_intervals("a run")
    if settings is not None and settings.fairness is not None and data.groups is None:
        raise ConfigError("model.penalties.fairness needs dataset.sensitive=COLUMN")
    model.check_data(data)
    for peer in peers:
        try:
            peer.check()
            peer.check_data(data)
        except SstorchError as error:
            raise ConfigError(f"peers.{peer.name}: {error}; leave it out with ~peers.{peer.name}") from error
    competing = data.causes is not None
    checksum = data_checksum(data)
    if folder.is_completed(config_text, checksum):
        print(f"done: {folder.path} contains this run, already completed")
        return held_out_score(pd.read_csv(folder.path / "scores.csv"), cv.score)
    make_folds(data, cv.n_folds, cv.seed)
    data.warn_of_few_events()
    n_trees = (cv.n_folds + 1) * model.n_starts
    _set_threads(config.threads, n_trees * 2 ** (model.depth or 0) * len(data))
    print(f"data     {config.dataset.name}: {data.describe()}")
    if data.groups is not None:
        sizes = zip(data.groups.labels, data.groups.counts, strict=True)
        print(f"groups   {data.groups.name}: " + ", ".join(f"{count} {label}" for label, count in sizes))
    print(f"model    {_model_text(data, settings) if settings else ' '.join(repr(estimator).split())}")
    place = f"{settings.dtype} on {_device_text(settings.device)}" if settings else "one after the other"
    print(
        f"batch    {n_trees} trees: ({cv.n_folds} folds + all rows) x {model.n_starts} starts, {place}",
        flush=True,
    )
    identity = without_logger(config_text), checksum, getattr(data.groups, "codes", None), versions()
    with opened(folder.checkpoint, run=identity) as checkpoint:
        killed = folder.killed()
        if folder.begin(config_text, checksum):
            print(f"resume   continues from {folder.checkpoint}", flush=True)
        if killed is not None:
            rest = "" if folder.checkpoint.exists() else ", before anything could be kept; it begins anew"
            print(f"note     the run here stopped ({killed}), as where memory ends{rest}", flush=True)
        # Causes are trained one after the other, and their records would overwrite each other.
        callbacks = [*own, *([] if competing else [HistoryWriter(folder.history)])]
        board = None
        if config.logger.tensorboard:
            board = TensorBoard(folder.tensorboard, split_names(cv.n_folds))
            verbatim = "\n".join(f"    {line}" for line in config_text.splitlines())
            for name in board.runs:
                board.writer(name).add_text("config", verbatim)
            callbacks += [] if competing else [board]
        if config.logger.progress:
            callbacks.append(ProgressBar())
        begin = time.perf_counter()
        try:
            with _Interruption() as interruption:
                result = cross_validate(
                    estimator,
                    data,
                    cv.n_folds,
                    cv.seed,
                    [*callbacks, interruption],
                    checkpoint,
                )
            seconds = time.perf_counter() - begin
            compared = score_run(result, data, checkpoint, peers) if cv.peers else None
            report("writing", 0, 1)
            figures = folder.write_results(result, data, compared)
            if board is not None:
                for name, figure in figures.items():
                    board.writer(name).add_figure("survival by leaf", figure, close=False)
                for name, choice in result.choices.items():
                    write_choice(board.writer(name), choice)
                for fold, name in enumerate(board.runs[:-1]):
                    scores = {f"final/{score}": mean for score, mean in _test_means(result, fold).items()}
                    board.writer(name).add_hparams(_hparams(config), scores, run_name=".")
        finally:
            if board is not None:
                board.close()
        folder.write_status(
            "completed", seconds=round(seconds, 2), trees=n_trees, data=checksum, versions=versions()
        )
        folder.checkpoint.unlink(missing_ok=True)
    print(f"\n{_table_text(result)}")
    if compared is not None:
        print(f"\n{_peers_text(compared)}")
    if result.choices and model.depth:
        print(f"\n{_evidence_text(result)}")
    print(f"\nThe tree trained on all rows\n{result.model.summary(details=True)}\n")
    if board is not None and (result.choices or not competing):
        shown = "evidence and penalties" if result.choices else "training curves"
        print(f"{shown}: tensorboard --logdir {shlex.quote(str(folder.tensorboard))}")
    if settings is not None:
        print(f"report: sstorch-report {shlex.quote(str(folder.path))}")
    print(f"done: {n_trees} trees trained and scored in {seconds:.1f} s; results in {folder.path}")
    return result.held_out_score(cv.score)


def _peers(config: Config, estimator: object) -> list[StudyModel]:
    """The estimators that are scored on the folds of a run, but for those of its own class."""
    made = [
        models_of(name, node, config.seed, f"peers.{name}") for name, node in (config.peers or {}).items()
    ]
    models = [model for each in made for model in each]
    return [m for m in models if not isinstance(m, SoftTreeModel) or type(m.estimator) is not type(estimator)]


def _callback(node: object, where: str) -> Callback:
    made = build(node, where)
    if not isinstance(made, Callback):
        raise ConfigError(f"{where} must be a Callback of sstorch.monitoring, got {type(made).__name__}")
    return made


def _model_text(data: SurvivalData, settings: BatchSettings) -> str:
    """Depth, leaves, gates and trainer, in words."""
    competing = data.causes is not None
    counts = events_of_causes(data)
    of_causes = {name: settings.for_cause(name if competing else None, n) for name, n in counts.items()}
    leaves = [f"{own.family.name} leaves{competing * f' of {name}'}" for name, own in of_causes.items()]
    parts = [*leaves, f"{settings.init} gates", *["penalties estimated"] * settings.estimated]
    if not all(own.plainly_estimated for own in of_causes.values()):
        parts.append(f"{type(settings.trainer).__name__.lower()} trainer")
    return f"depth {settings.depth}, {', '.join(parts)}"


def run_study(config: Config, study: StudyConfig, config_text: str) -> int:
    """Carry out a study, or what is left of it; the number of tasks that failed.

    What cannot be run raises an SstorchError before any work; an OSError means that results are not written.
    """
    if config.dataset.sensitive is not None:
        raise ConfigError("a study has no sensitive groups: leave dataset.sensitive out")
    sources = [config.dataset] if study.datasets is None else [DatasetConfig(name) for name in study.datasets]
    store, models = ResultStore(study.folder), study_models(config, study)
    devices = devices_of(config.device, study.n_jobs)
    begin = time.perf_counter()
    tasks = plan(sources, models, config.cv.n_folds, config.cv.seed, store)
    write_whole(store.path / "config.yaml", config_text.encode())
    left = [task for task in tasks if not store.holds(task.key)]
    print(f"study    {len(sources)} data sets x {len(models)} models on {config.cv.n_folds} folds")
    print(f"tasks    {len(tasks)}, of which {len(tasks) - len(left)} are in {store.path}", flush=True)
    done = 0

    def report(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        text = f"[{done}/{len(left)}] {outcome.task.key}: "
        if outcome.rows is None:
            print(f"{text}FAILED, {outcome.error}\n{outcome.traceback}", file=sys.stderr, flush=True)
            return
        print(f"{text}{_scores_text(outcome)} in {outcome.seconds:.1f} s", flush=True)

    failed = run_tasks(tasks, store, devices, report)
    if len(failed) < len(tasks):
        print(f"\n{_averages(store, tasks)}\n")
    for outcome in failed:
        print(f"failed   {outcome.task.key}: {outcome.error}")
    seconds = time.perf_counter() - begin
    state = (
        f"{len(failed)} of {len(tasks)} tasks failed; run it again to try them again" if failed else "done"
    )
    print(f"{state}: {len(tasks) - len(failed)} tasks are in {store.path}; {seconds:.0f} s")
    return len(failed)


def study_models(config: Config, study: StudyConfig) -> list[StudyModel]:
    """The models of a study, in the order of its configuration."""
    known = list(study.models)
    wanted = known if study.only is None else study.only
    for name in wanted:
        if name not in known:
            raise ConfigError(
                f"study.only: no model {name!r} in {', '.join(known)}.{nearest_text(name, known)}"
            )
    nodes = {name: study.models[name] for name in known if name in wanted}
    made = [models_of(name, node, config.seed, f"study.models.{name}") for name, node in nodes.items()]
    return [model for models in made for model in models]


class _Interruption(Callback):
    """Ctrl-C and a scheduler's request to stop.

    An exception that a signal raises inside a destructor or a callback of another library is lost. So the
    request is noted, and raised once more at the end of the pass.
    """

    def __init__(self) -> None:
        self._asked = False

    def __enter__(self) -> _Interruption:
        self._before = {s: signal.signal(s, self._note) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        raise KeyboardInterrupt

    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        """Stop if interrupted."""
        if self._asked:
            raise KeyboardInterrupt


def _interruption_text(folder: RunFolder, is_study: bool) -> str:
    """Note in the folder that the run was interrupted; how to go on with it, in words."""
    if is_study:
        return "interrupted; the same command continues with the remaining tasks"
    if not folder.end_early("interrupted"):
        return "interrupted before training began; nothing was written"
    name, place = ("sweep", HydraConfig.get().sweep.dir) if _is_swept() else ("run", str(folder.path))
    return (
        f"interrupted; what was done so far is in {folder.path}; the same command with "
        f"{setting_word(f'hydra.{name}.dir', place)} continues from there"
    )


def _is_swept() -> bool:
    """True if the job at work is one of a sweep."""
    return HydraConfig.get().mode == RunMode.MULTIRUN


def _dataset_overrides() -> str:
    """Overrides of the data set as they were typed on the command line, which may be none."""
    given = HydraConfig.get().overrides.task
    return " ".join(text for text in given if re.match(r"[+~]*dataset[.=@]", text))


def _job_text() -> str:
    """Name of the current job of a sweep, for messages."""
    job = HydraConfig.get()
    return f"job {job.job.num} ({' '.join(job.overrides.task)}): "


def _end_job(exit_code: int) -> NoReturn:
    """End the process, or of a sweep this job alone."""
    if _is_swept():
        raise JobError(exit_code)
    sys.exit(exit_code)


def _scores_text(outcome: Outcome) -> str:
    assert outcome.rows is not None
    test = outcome.rows[outcome.rows["part"] == "test"].groupby("metric")["value"].mean().dropna()
    return ", ".join(f"{name} {test[metric]:.3f}" for metric, name in _printed(test.index).items())


def _printed(metrics: Iterable[str]) -> dict[str, str]:
    """The metrics that are printed among some, and how: of causes with the name of the cause."""
    found = {}
    for name, short in (_PRINTED | _PRINTED_OF_GROUPS).items():
        for metric in metrics:
            of, _, cause = metric.partition(":")
            if of == name:
                found[metric] = f"{short} {cause}".rstrip()
    return found


def _averages(store: ResultStore, tasks: Sequence[StudyTask]) -> str:
    """Means on test folds by model, over the data sets that all of these models have."""
    table = store.table()
    table = table[table["config"].isin({task.key.config for task in tasks})]
    results = Results(table, store.facts(), metrics=list(_printed(table["metric"].unique())))
    return as_text(average_table(results))


def _table_text(result: CrossValidation) -> str:
    table = result.table()
    text = {
        score: [
            f"{mean:.4f} ({std:.4f})"
            for mean, std in zip(table[score, "mean"], table[score, "std"], strict=True)
        ]
        for score in result.score_names
    }
    body = pd.DataFrame(text, index=[f"{part}, {trees}" for part, trees in table.index])
    return f"Scores, mean (standard deviation) over folds\n{body.to_string()}"


def _evidence_text(result: CrossValidation) -> str:
    """Choice by evidence in each split, and gain of groups over the regression."""
    names = {"chosen": "hazards of", "n_groups": "groups", "gain": "gain"}
    table = result.evidence()[list(names)].rename(columns=names).rename_axis(None)
    return f"Evidence of the best groups minus that of the regression, in nats\n{table.round(1).to_string()}"


def _peers_text(scores: pd.DataFrame) -> str:
    """The tree and reference models, means over test folds; a dash where a model has no density."""
    names = {**_printed(scores.columns), "log_likelihood": "log-likelihood"}
    table = peer_table(scores)[list(names)].rename(columns=names).rename_axis(None)
    return f"Compared with reference models on the same test folds\n{table.round(4).to_string(na_rep='-')}"


def _test_means(result: CrossValidation, fold: int) -> dict[str, float]:
    scores = result.scores[(result.scores["fold"] == fold) & (result.scores["part"] == "test")]
    return {name: float(scores[name].mean()) for name in result.score_names if name not in GROUP_SCORES}


def _hparams(config: Config) -> dict[str, bool | str | float | int]:
    """Settings that shape the result, by dotted name, as the HPARAMS page takes them."""
    chosen: dict[str, bool | str | float | int] = {"dataset": config.dataset.name, "seed": config.seed}
    for group, values in {"model": config.model, "cv": vars(config.cv)}.items():
        for name, value in plain_values(values, group):
            chosen[name] = value if isinstance(value, bool | str | float | int) else str(value)
    return chosen


def _set_threads(threads: int | None, n_elements: int) -> None:
    if threads is not None and threads < 1:
        raise ConfigError(f"threads must be at least 1 or null, got {threads}")
    if threads is None and n_elements < FEW:
        threads = 1
    if threads is not None:
        torch.set_num_threads(threads)


def _device_text(name: str) -> str:
    device = torch.device(name)
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    count = torch.get_num_threads()
    return f"{device} ({count} thread{'s' * (count > 1)})"


if __name__ == "__main__":
    main()
