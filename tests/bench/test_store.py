"""The store of a study: whole files or none, whoever writes and however it ends."""

import multiprocessing
import os
import resource
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sstorch.bench.store import COLUMNS, ResultStore, TaskKey
from sstorch.exceptions import ConfigError, FormatError

KEY = TaskKey("gbsg2", "cox", None, "0123456789ab")
TREE = TaskKey("aids", "sst_llog", 2, "ba9876543210")


def _rows(value: float = 0.5, n: int = 2) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "fold": range(n),
            "start": 0,
            "part": "test",
            "chosen": True,
            "metric": "c_harrell",
            "value": value,
            "reason": "",
        }
    )


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


def _write_for_ever(path: Path) -> None:
    store = ResultStore(path)
    while True:
        store.write(KEY, _rows(1.0, 50_000), {})


@pytest.mark.nightly
def test_a_killed_writer_leaves_whole_files(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    for pause in (0.05, 0.12, 0.2):
        process = context.Process(target=_write_for_ever, args=(tmp_path,))
        process.start()
        while not ResultStore(tmp_path).holds(KEY):
            time.sleep(0.01)
        time.sleep(pause)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert len(ResultStore(tmp_path).table()) == 50_000


def _write_on_a_full_disk(path: Path, told: "multiprocessing.SimpleQueue[str]") -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
    try:
        ResultStore(path).write(
            KEY, _rows(1.0).sample(50_000, replace=True, random_state=0), {"x": "y" * 9000}
        )
    except OSError as error:
        told.put(str(error))


@pytest.mark.nightly
def test_a_disk_that_is_full_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.write(KEY, _rows(0.5), {})
    context = multiprocessing.get_context("spawn")
    told = context.SimpleQueue()
    process = context.Process(target=_write_on_a_full_disk, args=(tmp_path, told))
    process.start()
    assert "File too large" in told.get()
    process.join()
    assert store.table()["value"].tolist() == [0.5, 0.5]
    assert [path.name for path in (tmp_path / "results" / "gbsg2").iterdir()] == [KEY.file.name]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"cannot be kept in .*file.*choose another"):
        ResultStore(tmp_path / "file").check_writable()
    ResultStore(tmp_path / "new").check_writable()
    assert list((tmp_path / "new" / "results").iterdir()) == []


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
    with pytest.raises(FormatError, match="holds no results of a study"):
        store.facts()
