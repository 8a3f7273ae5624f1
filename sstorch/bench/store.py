"""The results of a study on disk: a parquet file a task, written whole or not at all, or one file for all."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import BaseFileLock

from sstorch.exceptions import ConfigError, FormatError
from sstorch.files import take_lock, try_lock, unlock, write_whole

# The columns of the rows, in this order.
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
_SCHEMA = pa.schema(
    [
        (name, {"string": pa.string(), "bool": pa.bool_(), "float64": pa.float64()}.get(dtype, pa.int64()))
        for name, dtype in COLUMNS.items()
    ]
)
# The facts of a task stand in the metadata of its own file, and in a column of the packed file, in the first
# of the rows of the task.
_FACTS = b"sstorch"
_FACTS_COLUMN = "facts"
# Inode, time of change and size of a file, by which another one of the same name is told from it.
_Version = tuple[int, int, int]


@dataclass(frozen=True)
class TaskKey:
    """Key of a task of a study: names of data set and model, the depth of its trees if it has one.

    ``config`` are 12 hexadecimal digits of a checksum over the data, the model's settings and the protocol.
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


@dataclass(frozen=True)
class _Result:
    """The stored results of a task: its rows, and its facts as JSON."""

    rows: pa.Table
    facts: str

    @property
    def key(self) -> TaskKey:
        record = json.loads(self.facts)
        return TaskKey(record["dataset"], record["model"], record["depth"], record["config"])


class ResultStore:
    """Folder of results that any number of processes may write at once.

    A task has one file, ``results/<dataset>/<model>_d<depth>_<config>.parquet``: its rows, and in the file's
    own metadata what is known of the task as a whole. It appears when it is complete, so that whatever ends
    a process, the files that are there can be read.

    :meth:`pack` moves the rows and facts of all these files into one, ``results.parquet``, a third of their
    size. Everything else here sees no difference, and further tasks are written beside it. If a task is in
    both, its own file counts, since it was written later.

    Args:
        path: folder of the study.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        # Which tasks the packed file of this version has.
        self._in_packed: tuple[_Version | None, frozenset[TaskKey]] = (None, frozenset())

    @property
    def results(self) -> Path:
        """Folder of the parquet files of the tasks."""
        return self.path / "results"

    @property
    def packed(self) -> Path:
        """The one file of all tasks that have been packed."""
        return self.path / "results.parquet"

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
        """True if the results of a task are there.

        Raises:
            FormatError: the packed file is damaged.
        """
        # In this order: a file that is packed meanwhile goes only when the packed file has it.
        return (self.results / key.file).exists() or key in self._packed_keys()

    def claim(self, key: TaskKey) -> BaseFileLock | None:
        """Take a task for ourselves, until it is given back by ``unlock`` or this process ends.

        Returns:
            The lock; None if the task is done or another process is at it.
        """
        file = self.results / key.file
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = try_lock(file.with_suffix(".lock"))
        if lock is not None and self.holds(key):
            unlock(lock)
            return None
        return lock

    def write(self, key: TaskKey, rows: pd.DataFrame, facts: dict[str, Any]) -> None:
        """Add the results of a claimed task, all of them or, if they cannot be written, nothing.

        Args:
            key: of the task.
            rows: columns fold, start, part, chosen, metric, value, reason.
            facts: what else is known of the task, as JSON can hold it.

        Raises:
            OSError: the file cannot be written, for instance on a full disk; what was there is untouched.
        """
        task = {"dataset": key.dataset, "model": key.model, "depth": key.depth, "config": key.config}
        table = pa.Table.from_pandas(rows.assign(**task).astype(COLUMNS)[list(COLUMNS)], preserve_index=False)
        record = json.dumps({**task, **facts}, sort_keys=True).encode()
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
        self._write_whole(file, content.getbuffer())

    def pack(self) -> int:
        """Move the results of all tasks into the packed file, and delete the files of the tasks.

        Files are deleted when the packed file is written and has been read back. Other processes may read
        and write at the same time: the file of a task that another process is at stays, as does one that has
        changed meanwhile or has no rows. The folders of the data sets stay, too: others may be about to write
        there.

        Returns:
            How many files were deleted; 0 if there was nothing to pack.

        Raises:
            ConfigError: there are no results, or another process is packing them.
            FormatError: a file is damaged, or is not where its task belongs; nothing has changed.
            OSError: the packed file cannot be written; no file of a task is deleted.
        """
        if not self._files() and not self.packed.exists():
            raise self._nothing()
        lock = take_lock(self.path / "results.lock")
        try:
            versions = {file: _version(file) for file in self._files()}
            stored = self._stored()
            packable = {file: result for file, result in stored.items() if result.rows.num_rows}
            for file, result in packable.items():
                if result.key.file != file:
                    raise FormatError(f"{self.results / file} holds the results of {result.key}; delete it")
            going = [file for file in versions if file.relative_to(self.results) in packable]
            if not going:
                return 0
            content = _pack(packable.values())
            if _unpack(self.packed, content) != packable:
                raise FormatError(f"{self.path}: packed results would not be those of the files; they stay")
            self._write_whole(self.packed, content)
            if self.packed.read_bytes() != content:
                raise OSError(f"{self.packed} is not what was written to it; the files of the tasks stay")
            return sum(_delete(file, versions[file]) for file in going)
        finally:
            unlock(lock)

    def table(self) -> pd.DataFrame:
        """All results, a row per fold, start, part and metric of every task; sorted, so in one order always.

        Raises:
            ConfigError: there are none.
            FormatError: a file is damaged.
        """
        keys = ["dataset", "model", "depth", "config", "fold", "start", "part", "metric"]
        whole = pa.concat_tables([result.rows for result in self._stored().values()]).to_pandas()
        table: pd.DataFrame = whole.astype(COLUMNS).sort_values(keys, ignore_index=True)
        return table

    def facts(self) -> list[dict[str, Any]]:
        """The facts of every task, in the order of :meth:`table`.

        Raises:
            ConfigError: there are none.
            FormatError: a file is damaged.
        """
        return [json.loads(result.facts) for result in sorted(self._stored().values(), key=_order)]

    def _files(self) -> list[Path]:
        return sorted(self.results.glob("*/[!.]*.parquet"))

    def _stored(self) -> dict[Path, _Result]:
        """All results, by the file in :attr:`results` that is or would be that of their task."""
        single: dict[Path, _Result] = {}
        for file in self._files():
            # One that is gone has been packed since: the packed file is read after these.
            with suppress(FileNotFoundError):
                single[file.relative_to(self.results)] = _read(file)
        packed: dict[Path, _Result] = {}
        with suppress(FileNotFoundError):
            packed = _unpack(self.packed, self.packed.read_bytes())
        if not single and not packed:
            raise self._nothing()
        return {**packed, **single}

    def _packed_keys(self) -> frozenset[TaskKey]:
        try:
            version = _version(self.packed)
            if version != self._in_packed[0]:
                results = _unpack(self.packed, self.packed.read_bytes())
                self._in_packed = (version, frozenset(result.key for result in results.values()))
        except FileNotFoundError:
            return frozenset()
        return self._in_packed[1]

    def _nothing(self) -> ConfigError:
        places = f"{self.results.name}/*/*.parquet or {self.packed.name}"
        return ConfigError(f"{self.path} holds no results of a study (no {places})")

    @staticmethod
    def _write_whole(file: Path, content: bytes | memoryview) -> None:
        try:
            write_whole(file, content)
        except OSError as error:
            advice = f"{error.strerror}; what is stored is untouched: make room and run the study again"
            raise OSError(error.errno, advice, str(file)) from error


def _read(file: Path) -> _Result:
    """The results of a task from its own file."""
    table, names = _parse(file, file.read_bytes(), "delete it, and the study makes it again")
    metadata = table.schema.metadata or {}
    if set(COLUMNS) - names or _FACTS not in metadata:
        raise FormatError(f"{file} holds no results of a study; delete it")
    return _Result(
        table.select(list(COLUMNS)).cast(_SCHEMA).replace_schema_metadata(), metadata[_FACTS].decode()
    )


def _pack(results: Iterable[_Result]) -> bytes:
    """The packed file of these results, whatever their order."""
    ordered = sorted(results, key=_order)
    facts = [text for result in ordered for text in [result.facts, *[None] * (result.rows.num_rows - 1)]]
    rows = pa.concat_tables([result.rows for result in ordered])
    content = io.BytesIO()
    pq.write_table(
        rows.append_column(_FACTS_COLUMN, pa.array(facts, pa.string())),
        content,
        compression="zstd",
        compression_level=15,
        # Values hardly repeat, and compress better byte by byte.
        use_dictionary=[name for name in COLUMNS if name != "value"],
        column_encoding={"value": "BYTE_STREAM_SPLIT"},
        store_schema=False,
        write_statistics=False,
        write_page_checksum=True,
    )
    return content.getvalue()


def _unpack(file: Path, content: bytes) -> dict[Path, _Result]:
    """The results of a packed file, by the files that their tasks would have."""
    table, names = _parse(
        file, content, "restore it from a copy, or delete it, and the study makes its tasks again"
    )
    if {*COLUMNS, _FACTS_COLUMN} - names:
        raise FormatError(f"{file} holds no packed results of a study; move it elsewhere")
    rows, facts = table.select(list(COLUMNS)).cast(_SCHEMA), table[_FACTS_COLUMN]
    first = np.flatnonzero(facts.is_valid().to_numpy())
    counts = np.diff(first, append=table.num_rows)
    results = [
        _Result(rows.slice(row, count), facts[row].as_py())
        for row, count in zip(first.tolist(), counts.tolist(), strict=True)
    ]
    return {result.key.file: result for result in results}


def _parse(file: Path, content: bytes, remedy: str) -> tuple[pa.Table, set[str]]:
    """The table of a parquet file and the names of its columns."""
    try:
        table = pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
        return table, set(table.column_names)
    # The content is in memory: an OSError is one of its checksums or of its compression.
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise FormatError(f"{file} is damaged: {reason}; {remedy}") from error


def _order(result: _Result) -> tuple[str, str, int, str]:
    key = result.key
    return key.dataset, key.model, key.depth or 0, key.config


def _version(file: Path) -> _Version:
    status = file.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


def _delete(file: Path, version: _Version) -> bool:
    """Delete the file of a task unless another process is at the task or the file is another one by now."""
    lock = try_lock(file.with_suffix(".lock"))
    if lock is None:
        return False
    try:
        if _version(file) != version:
            return False
        file.unlink()
        return True
    finally:
        unlock(lock)
