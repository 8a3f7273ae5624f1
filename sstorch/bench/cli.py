"""The ``sstorch`` command: one Hydra app that carries out a run or a study."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sstorch.bench.arguments import as_hydra_takes, refusal_text, setting_word
from sstorch.bench.config import Config, DatasetConfig, StudyConfig, config_path, register_schemas, to_config
from sstorch.bench.report.results import Results
from sstorch.bench.report.study import as_text, average_table
from sstorch.bench.run import printed, run
from sstorch.bench.run_folder import RunFolder
from sstorch.bench.store import ResultStore
from sstorch.bench.study import Outcome, StudyTask, devices_of, plan, run_tasks
from sstorch.bench.study_model import StudyModel, models_of
from sstorch.checks import nearest_text
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

# What is reported in one line; anything else is a defect and keeps its traceback.
REFUSALS = (SstorchError, HydraException, OmegaConfBaseException, OSError)

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


def _scores_text(outcome: Outcome) -> str:
    assert outcome.rows is not None
    test = outcome.rows[outcome.rows["part"] == "test"].groupby("metric")["value"].mean().dropna()
    return ", ".join(f"{name} {test[metric]:.3f}" for metric, name in printed(test.index).items())


def _averages(store: ResultStore, tasks: Sequence[StudyTask]) -> str:
    """Means on test folds by model, over the data sets that all of these models have."""
    table = store.table()
    table = table[table["config"].isin({task.key.config for task in tasks})]
    results = Results(table, store.facts(), metrics=list(printed(table["metric"].unique())))
    return as_text(average_table(results))


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


if __name__ == "__main__":
    main()
