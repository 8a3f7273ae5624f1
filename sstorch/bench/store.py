"""The results of a study on disk: a parquet file a task, written whole or not at all."""

from __future__ import annotations

import io
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sstorch.exceptions import ConfigError, FormatError
from sstorch.files import write_whole

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
_ORDER = ["dataset", "model", "depth", "config", "fold", "start", "part", "metric"]
# The facts of a task stand in the metadata of its file.
_FACTS = b"sstorch"


@dataclass(frozen=True)
class TaskKey:
    """Key of a task of a study."""

    dataset: str
    model: str
    depth: int | None  # of trees
    config: str  # 12 hexadecimal digits of a checksum over the data, the model's settings and the protocol

    def __str__(self) -> str:
        return f"{self.dataset} {self.model}" + ("" if self.depth is None else f" of depth {self.depth}")

    @property
    def file(self) -> Path:
        """Its file inside the folder of the store."""
        depth = "" if self.depth is None else f"_d{self.depth}"
        return Path(self.dataset) / f"{self.model}{depth}_{self.config}.parquet"


class ResultStore:
    """Folder of the results of a study.

    A task has one file, ``results/<dataset>/<model>_d<depth>_<config>.parquet``: its rows, and facts about
    the task in the metadata. Existing files are always complete.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.results = self.path / "results"

    def holds(self, key: TaskKey) -> bool:
        """True if the results of a task exist."""
        return (self.results / key.file).exists()

    def write(self, key: TaskKey, rows: pd.DataFrame, facts: dict[str, Any]) -> None:
        """Write the results of a task, completely or not at all (OSError, for example on a full disk).

        `rows` have the columns fold, start, part, chosen, metric, value, reason; `facts` are JSON.
        """
        whole = rows.assign(**asdict(key)).astype(COLUMNS)[list(COLUMNS)]
        record = json.dumps({**asdict(key), **facts}, sort_keys=True).encode()
        table = pa.Table.from_pandas(whole, preserve_index=False).replace_schema_metadata({_FACTS: record})
        content, file = io.BytesIO(), self.results / key.file
        # Without statistics and the description of the frame the many small files are half as large.
        pq.write_table(table, content, compression="zstd", write_statistics=False)
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_whole(file, content.getbuffer())
        except OSError as error:
            advice = f"{error.strerror}; what is stored is untouched: make room and run the study again"
            raise OSError(error.errno, advice, str(file)) from error

    def table(self) -> pd.DataFrame:
        """All results, sorted, a row per fold, start, part and metric of every task.

        Raises:
            ConfigError: there are none.
            FormatError: a file is damaged.
        """
        whole = pd.concat([rows for rows, _ in self._read()], ignore_index=True)
        return whole.sort_values(_ORDER, ignore_index=True)

    def facts(self) -> list[dict[str, Any]]:
        """The facts of every task, in the order of :meth:`table`, with its errors."""
        facts: list[dict[str, Any]] = [json.loads(text) for _, text in self._read()]
        return sorted(facts, key=lambda of: (of["dataset"], of["model"], of["depth"] or 0, of["config"]))

    def _read(self) -> list[tuple[pd.DataFrame, bytes]]:
        """Rows and facts, as JSON, of every task."""
        files, found = sorted(self.results.glob("*/[!.]*.parquet")), []
        if not files:
            raise ConfigError(f"{self.path} holds no results of a study (no {self.results.name}/*/*.parquet)")
        for file in files:
            try:
                table = pq.read_table(pa.BufferReader(file.read_bytes()))
                record = (table.schema.metadata or {})[_FACTS]
                found.append((table.to_pandas()[list(COLUMNS)].astype(COLUMNS), record))
            # The content is in memory: an OSError is one of its compression, a KeyError one of other content.
            except (pa.ArrowException, OSError, UnicodeDecodeError, KeyError) as error:
                reason = " ".join(str(error).split())
                raise FormatError(f"{file} is damaged: {reason}; delete it, and repeat the study") from error
        return found
