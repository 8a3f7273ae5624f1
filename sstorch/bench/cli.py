"""The ``sstorch`` command: one Hydra app that carries out a run or a study."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from sstorch.bench.arguments import as_hydra_takes, refusal_text
from sstorch.bench.config import config_path, register_schemas, to_config
from sstorch.bench.run import run
from sstorch.bench.run_folder import RunFolder
from sstorch.bench.study import run_study
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

# What is reported in one line; anything else is a defect and keeps its traceback.
REFUSALS = (SstorchError, HydraException, OmegaConfBaseException, OSError)

# Hydra's error for settings of a study that is null is an AssertionError.
_NO_STUDY = "a setting of study was given, but no study: choose one with experiment=NAME; --help lists them"

register_schemas()


def main() -> None:
    """Run ``sstorch``: exit code 0, 1 if tasks of a study failed, 2 if refused, 130 if interrupted."""
    # A sweep continues after a failed job, and ends with the exit code of the first that failed.
    # A scheduler's request to stop is treated as Ctrl-C is.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Hydra's own refusals come here instead of being printed at length.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    typed = sys.argv
    try:
        with exit_codes("sstorch", REFUSALS):
            sys.argv = [typed[0], *as_hydra_takes(typed[1:])]
            try:
                _app()
            except HydraException as error:
                raise ConfigError(refusal_text(error)) from error
            except AssertionError as error:
                if "Unexpected type for root" not in str(error):
                    raise
                raise ConfigError(_NO_STUDY) from error
    finally:
        sys.argv = typed


@hydra.main(version_base="1.3", config_path=config_path(), config_name="config")
def _app(composed: DictConfig) -> float | None:
    """One job; returns the mean held-out score of a run, by which sweepers choose."""
    show_warnings_as_notes("sstorch")
    job = HydraConfig.get()
    folder, swept = RunFolder(Path(job.runtime.output_dir)), job.mode == RunMode.MULTIRUN
    name = f"job {job.job.num} ({' '.join(job.overrides.task)}): " if swept else ""
    try:
        config, text = to_config(composed), OmegaConf.to_yaml(composed, resolve=True)
        if config.study is None:
            return run(config, text, folder)
        unread = " ".join(each for each in job.overrides.task if re.match(r"[+~]*dataset[.=@]", each))
        if config.study.datasets is not None and unread:
            raise ConfigError(
                f"{unread} would not be read: study.datasets names the data sets. Leave it out, or set "
                "study.datasets=null"
            )
        if run_study(config, config.study, text):
            _end_job(EXIT_FAILED, swept)
        return None
    except KeyboardInterrupt:
        print(f"\nsstorch: {_interruption_text(folder, composed.study is not None, swept)}", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except JobError:
        raise
    except Exception as error:
        # The status has no room either where the disk is full: what is reported is the first error.
        with suppress(OSError):
            folder.end_early("failed", error=str(error) or repr(error))
        if isinstance(error, REFUSALS):
            place = "" if getattr(error, "filename", "") is not None else f"{folder.path}: "
            print_refusal("sstorch", error, f"{name}{place}")
            _end_job(EXIT_REFUSED, swept)
        if swept:  # of several, Hydra would show the first alone
            traceback.print_exc()
            print(f"sstorch: error: {name}failed unexpectedly, see above", file=sys.stderr)
            raise JobError(EXIT_FAILED) from error
        raise


def _interruption_text(folder: RunFolder, is_study: bool, swept: bool) -> str:
    """Note in the folder that the run was interrupted; how to go on with it, in words."""
    if is_study:
        return "interrupted; the same command continues with the remaining tasks"
    if not folder.end_early("interrupted"):
        return "interrupted before training began; nothing was written"
    name, place = ("sweep", HydraConfig.get().sweep.dir) if swept else ("run", str(folder.path))
    return (
        f"interrupted; what was done so far is in {folder.path}; the same command with "
        f"{shlex.quote(f'hydra.{name}.dir={place}')} continues from there"
    )


def _end_job(exit_code: int, swept: bool) -> NoReturn:
    """End the process, or of a sweep this job alone."""
    if swept:
        raise JobError(exit_code)
    sys.exit(exit_code)


if __name__ == "__main__":
    main()
