"""The store of a study: whole files or none, whoever writes and however it ends."""

import os
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from sstorch.bench.store import COLUMNS, ResultStore, TaskKey
from sstorch.exceptions import ConfigError, FormatError

KEY = TaskKey("gbsg2", "cox", None, "0123456789ab")
TREE = TaskKey("aids", "sst_llog", 2, "ba9876543210")


def _rows(value: float = 0.5, n: int = 2) -> pd.DataFrame:
    about = {"start": 0, "part": "test", "chosen": True, "metric": "c_harrell", "value": value, "reason": ""}
    return pd.DataFrame({"fold": range(n)} | about)


def test_what_is_written_is_read_back_in_one_order(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    undefined = _rows().assign(value=[0.25, np.nan], reason=["", "no event"])
    store.write(KEY, undefined, {"seconds": {"fit": 1.5}})
    store.write(TREE, _rows(0.75), {"versions": {"torch": "2"}})
    table = ResultStore(tmp_path).table()
    assert list(table) == list(COLUMNS)
    assert table["dataset"].tolist() == ["aids", "aids", "gbsg2", "gbsg2"]
    assert table["depth"].tolist() == [2, 2, pd.NA, pd.NA]
    assert table["value"].tolist()[:3] == [0.75, 0.75, 0.25]
    assert table.loc[3, ["value", "reason"]].isna().tolist() == [True, False]
    assert table.loc[3, "reason"] == "no event"
    assert [facts["model"] for facts in store.facts()] == ["sst_llog", "cox"]
    assert store.holds(KEY)
    assert not store.holds(TaskKey("aids", "sst_llog", 3, TREE.config))
    assert store.facts()[1] == {
        "dataset": "gbsg2", "model": "cox", "depth": None, "config": KEY.config, "seconds": {"fit": 1.5},
    }  # fmt: skip


def test_a_disk_that_is_full_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ResultStore(tmp_path)
    store.write(KEY, _rows(0.5), {})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="what is stored is untouched"):
            store.write(KEY, _rows(1.0), {})
    assert store.table()["value"].tolist() == [0.5, 0.5]
    assert [path.name for path in (tmp_path / "results" / "gbsg2").iterdir()] == [KEY.file.name]


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    with pytest.raises(ConfigError, match="holds no results"):
        store.table()
    store.write(KEY, _rows(), {})
    file = store.results / KEY.file
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError, match=f"{file.name} is damaged.*delete it"):
        store.table()
    _rows().to_parquet(file)
    with pytest.raises(FormatError, match="is damaged"):
        store.facts()
