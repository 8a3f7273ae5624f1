"""The results of a study on disk: a parquet file a task, written whole or not at all."""

from __future__ import annotations

import io
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sstorch.exceptions import ConfigError, FormatError
from sstorch.optim.file_lock import FileLock
from sstorch.whole_file import write_whole

# What every row says, in this order.
COLUMNS = {
    "dataset": "string",
    "model": "string",
    "depth": "Int64",
    "config": "string",
    "fold": "int64",
    "start": "int64",
    "part": "string",
    "chosen": "bool",
    "metric": "string",
    "value": "float64",
    "reason": "string",
}
_FACTS = b"sstorch"


@dataclass(frozen=True)
class TaskKey:
    """What tells one task of a study from every other.

    Attributes:
        dataset: name of the data set.
        model: name of the model.
        depth: of its trees; None for a model without one.
        config: 12 hexadecimal digits of a checksum over the data, the settings of the model and the protocol.
    """

    dataset: str
    model: str
    depth: int | None
    config: str

    def __str__(self) -> str:
        return f"{self.dataset} {self.model}" + ("" if self.depth is None else f" of depth {self.depth}")

    @property
    def file(self) -> Path:
        """Its file inside the folder of the store."""
        depth = "" if self.depth is None else f"_d{self.depth}"
        return Path(self.dataset) / f"{self.model}{depth}_{self.config}.parquet"


class ResultStore:
    """Folder of results that any number of processes may write at once.

    A task has one file, ``results/<dataset>/<model>_d<depth>_<config>.parquet``: its rows, and in the file's
    own metadata what is known of the task as a whole. It appears when it is complete, so that whatever ends
    a process, the files that are there can be read.

    Args:
        path: folder of the study.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @property
    def results(self) -> Path:
        """Folder of the parquet files."""
        return self.path / "results"

    def check_writable(self) -> None:
        """Make the folder and write a file there, before any work is done.

        Raises:
            ConfigError: it cannot be written.
        """
        probe = self.results / f".probe-{os.getpid()}"
        try:
            self.results.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(bytes(4096))
            probe.unlink()
        except OSError as error:
            with suppress(OSError):
                probe.unlink(missing_ok=True)
            raise ConfigError(f"the study cannot be kept in {self.path}: {error}; choose another") from error

    def holds(self, key: TaskKey) -> bool:
        """Whether the results of a task are there."""
        return (self.results / key.file).exists()

    def claim(self, key: TaskKey) -> FileLock | None:
        """Take a task for ourselves, until the lock is released or this process ends.

        Returns:
            The lock; None if the task is done or another process is at it.
        """
        file = self.results / key.file
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(file.with_suffix(".lock"))
        if not lock.try_acquire():
            return None
        if self.holds(key):
            lock.release()
            return None
        return lock

    def write(self, key: TaskKey, rows: pd.DataFrame, facts: dict[str, Any]) -> None:
        """Add the results of a claimed task, all of them or, if they cannot be written, nothing.

        Args:
            key: of the task.
            rows: columns fold, start, part, chosen, metric, value, reason.
            facts: what else is known, as JSON can hold it.

        Raises:
            OSError: the file cannot be written, for instance on a full disk; what was there is untouched.
        """
        own = {"dataset": key.dataset, "model": key.model, "depth": key.depth, "config": key.config}
        table = pa.Table.from_pandas(rows.assign(**own).astype(COLUMNS)[list(COLUMNS)], preserve_index=False)
        record = json.dumps({**own, **facts}, sort_keys=True).encode()
        content = io.BytesIO()
        # Without statistics and the description of the frame the many small files are half as large.
        pq.write_table(
            table.replace_schema_metadata({_FACTS: record}),
            content,
            compression="zstd",
            write_statistics=False,
        )
        file = self.results / key.file
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_whole(file, content.getbuffer())
        except OSError as error:
            told = f"{error.strerror}; what is stored is untouched: make room and run the study again"
            raise OSError(error.errno, told, str(file)) from error

    def table(self) -> pd.DataFrame:
        """All results, a row per fold, start, part and metric of every task; sorted, so in one order always.

        Raises:
            ConfigError: there are none.
            FormatError: a file is damaged.
        """
        keys = ["dataset", "model", "depth", "config", "fold", "start", "part", "metric"]
        whole = pd.concat([_read(file).to_pandas() for file in self._files()], ignore_index=True)
        table: pd.DataFrame = whole.astype(COLUMNS).sort_values(keys, ignore_index=True)
        return table

    def facts(self) -> list[dict[str, Any]]:
        """What is known of every task as a whole, in the order of :meth:`table`.

        Raises:
            ConfigError: there are none.
            FormatError: a file is damaged.
        """
        found: list[dict[str, Any]] = [
            json.loads(_read(file).schema.metadata[_FACTS]) for file in self._files()
        ]
        return sorted(found, key=lambda own: (own["dataset"], own["model"], own["depth"] or 0, own["config"]))

    def _files(self) -> list[Path]:
        files = sorted(self.results.glob("*/[!.]*.parquet"))
        if not files:
            raise ConfigError(f"{self.path} holds no results of a study (no {self.results.name}/*/*.parquet)")
        return files


def _read(file: Path) -> pa.Table:
    try:
        table = pq.read_table(file)
    except (pa.ArrowInvalid, pa.ArrowException) as error:
        raise FormatError(f"{file} is damaged: {error}; delete it, and the study makes it again") from error
    if set(COLUMNS) - set(table.column_names) or _FACTS not in (table.schema.metadata or {}):
        raise FormatError(f"{file} holds no results of a study; delete it")
    return table
