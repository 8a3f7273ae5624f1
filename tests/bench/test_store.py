"""The store of a study: whole files or none, whoever writes and however it ends."""

import multiprocessing
import os
import resource
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sstorch.bench import store as module
from sstorch.bench.store import COLUMNS, ResultStore, TaskKey
from sstorch.exceptions import ConfigError, FormatError
from sstorch.files import take_lock, unlock

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
    assert store.facts()[1] == {
        "dataset": "gbsg2", "model": "cox", "depth": None, "config": KEY.config, "seconds": {"fit": 1.5},
    }  # fmt: skip


def test_a_task_is_claimed_once(tmp_path: Path) -> None:
    store, other = ResultStore(tmp_path), ResultStore(tmp_path)
    ours = store.claim(KEY)
    assert ours is not None
    assert other.claim(KEY) is None
    another = other.claim(TREE)
    assert another is not None
    unlock(another)
    store.write(KEY, _rows(), {})
    unlock(ours)
    assert other.claim(KEY) is None  # it is done
    assert other.holds(KEY)
    assert not other.holds(TREE)
    assert [path.name for path in (tmp_path / "results" / "gbsg2").iterdir()] == [KEY.file.name]


def test_one_holder_at_a_time_however_often_the_file_comes_and_goes(tmp_path: Path) -> None:
    inside, most, taken, errors = 0, 0, 0, []

    def take_many() -> None:
        nonlocal inside, most, taken
        try:
            for _ in range(1000):
                claim = ResultStore(tmp_path).claim(KEY)
                if claim is not None:
                    inside += 1
                    most = max(most, inside)
                    taken += 1
                    inside -= 1
                    unlock(claim)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=take_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert most == 1
    assert taken > 100
    assert list((tmp_path / "results" / "gbsg2").iterdir()) == []


def _claim_and_sleep(path: Path, told: "multiprocessing.SimpleQueue[bool]") -> None:
    claim = ResultStore(path).claim(KEY)
    told.put(claim is not None)
    time.sleep(600)


@pytest.mark.nightly
def test_a_claim_ends_with_its_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    told = context.SimpleQueue()
    process = context.Process(target=_claim_and_sleep, args=(tmp_path, told))
    process.start()
    assert told.get()
    assert ResultStore(tmp_path).claim(KEY) is None
    process.kill()
    process.join()
    claim = ResultStore(tmp_path).claim(KEY)
    assert claim is not None
    unlock(claim)


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
        claim = ResultStore(tmp_path).claim(TREE)
        assert claim is not None
        unlock(claim)


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


def _study(path: Path, n: int = 4) -> ResultStore:
    """Results of n models on two data sets, among them undefined values and models without a depth."""
    store, draws = ResultStore(path), np.random.default_rng(1)
    for number in range(n):
        for dataset in ("aids", "gbsg2"):
            key = TaskKey(dataset, f"model{number}", number or None, f"{number:012}")
            rows = _rows(n=5).assign(value=draws.random(5), reason=["", "", "", "", "no event"])
            rows.loc[4, "value"] = np.nan
            store.write(key, rows, {"seconds": {"fit": draws.random()}, "fits": [{"fold": 1, "über": "é"}]})
    return store


def test_a_packed_study_is_the_study(tmp_path: Path) -> None:
    store = _study(tmp_path)
    table, facts = store.table(), store.facts()
    assert store.pack() == 8
    assert not [path for path in store.results.rglob("*") if path.is_file()]
    again = ResultStore(tmp_path)
    pd.testing.assert_frame_equal(again.table(), table, check_exact=True)
    assert again.facts() == facts
    key = TaskKey("aids", "model2", 2, f"{2:012}")
    assert again.holds(key)
    assert again.claim(key) is None
    assert not again.holds(TaskKey("aids", "model2", 3, key.config))
    assert [path.name for path in tmp_path.glob("*.*")] == ["results.parquet"]
    # For those who read the file without this package.
    plain = pd.read_parquet(store.packed)
    assert list(plain) == [*COLUMNS, "facts"]
    assert plain["facts"].notna().sum() == 8


def test_packing_again_changes_nothing(tmp_path: Path) -> None:
    store = _study(tmp_path)
    assert store.pack() == 8
    whole, status = store.packed.read_bytes(), store.packed.stat()
    assert store.pack() == 0
    assert (store.packed.read_bytes(), store.packed.stat().st_mtime_ns) == (whole, status.st_mtime_ns)


def test_the_packed_file_is_the_same_in_whatever_order_it_is_made(tmp_path: Path) -> None:
    once, twice = _study(tmp_path / "once"), _study(tmp_path / "twice")
    last = next(twice.results.glob("aids/model0*"))
    aside = last.rename(tmp_path / "aside")
    assert once.pack() == 8
    assert twice.pack() == 7
    aside.rename(last)
    assert twice.pack() == 1
    assert twice.packed.read_bytes() == once.packed.read_bytes()


def test_tasks_are_added_beside_a_packed_file_and_packed_into_it(tmp_path: Path) -> None:
    store = _study(tmp_path)
    store.pack()
    claim = store.claim(TREE)
    assert claim is not None
    store.write(TREE, _rows(0.75), {"seed": 3})
    unlock(claim)
    table, facts = store.table(), store.facts()
    assert len(table) == 42
    assert facts[4]["seed"] == 3
    assert store.holds(TREE)
    assert store.pack() == 1
    assert store.holds(TREE)
    assert store.table().equals(table)
    assert store.facts() == facts


def test_the_file_of_a_task_counts_where_the_packed_one_has_it_too(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.write(KEY, _rows(0.5), {"seed": 1})
    store.pack()
    store.write(KEY, _rows(0.25), {"seed": 2})
    assert store.table()["value"].tolist() == [0.25, 0.25]
    assert [record["seed"] for record in store.facts()] == [2]
    assert store.pack() == 1
    assert ResultStore(tmp_path).table()["value"].tolist() == [0.25, 0.25]


def test_a_store_sees_what_another_one_packs(tmp_path: Path) -> None:
    store, other = ResultStore(tmp_path), ResultStore(tmp_path)
    store.write(KEY, _rows(), {})
    other.pack()
    assert store.holds(KEY)
    assert not store.holds(TREE)
    other.write(TREE, _rows(), {})
    other.pack()
    assert store.holds(TREE)
    assert len(store.table()) == 4


def test_tasks_that_are_claimed_are_left_alone(tmp_path: Path) -> None:
    store, other = _study(tmp_path), ResultStore(tmp_path)
    under_way, written = store.claim(KEY), store.claim(TREE)
    assert under_way is not None
    assert written is not None
    store.write(TREE, _rows(0.75), {})
    assert other.pack() == 8
    assert [path.name for path in store.results.rglob("*.parquet")] == [TREE.file.name]
    assert other.claim(KEY) is None  # it is theirs still
    assert len(other.table()) == 42
    store.write(KEY, _rows(), {})
    unlock(under_way)
    unlock(written)
    assert len(other.table()) == 44
    assert other.pack() == 2
    assert len(other.table()) == 44


def test_a_file_that_is_written_anew_while_it_is_packed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _study(tmp_path)
    key = TaskKey("aids", "model1", 1, f"{1:012}")
    write_whole = module.write_whole

    def write_and_be_overtaken(path: Path, content: bytes) -> None:
        write_whole(path, content)
        if path == store.packed:
            ResultStore(tmp_path).write(key, _rows(0.125, 3), {})

    monkeypatch.setattr(module, "write_whole", write_and_be_overtaken)
    assert store.pack() == 7
    table = store.table()
    assert (
        table.loc[(table["dataset"] == "aids") & (table["model"] == "model1"), "value"].tolist()
        == [0.125] * 3
    )


def test_two_processes_do_not_pack_at_once(tmp_path: Path) -> None:
    store = _study(tmp_path)
    lock = take_lock(tmp_path / "results.lock")
    with pytest.raises(ConfigError, match=r"another run is writing beside .*results\.lock"):
        store.pack()
    assert len(list(store.results.glob("*/*.parquet"))) == 8
    unlock(lock)
    assert store.pack() == 8


@pytest.mark.parametrize("place", [0.1, 0.3, 0.5, 0.99])
def test_a_packed_file_with_an_altered_byte_is_refused(tmp_path: Path, place: float) -> None:
    store = _study(tmp_path, n=20)
    store.pack()
    _alter(store.packed, place)
    remedy = r"results.parquet is damaged: .*; restore it from a copy, or delete it"
    with pytest.raises(FormatError, match=remedy):
        store.table()
    with pytest.raises(FormatError, match=remedy):
        store.holds(KEY)
    store.write(KEY, _rows(), {})
    damaged = store.packed.read_bytes()
    with pytest.raises(FormatError, match=remedy):
        store.pack()
    assert store.packed.read_bytes() == damaged
    assert (store.results / KEY.file).exists()


def _alter(file: Path, place: float) -> None:
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 0xFF
    file.write_bytes(content)


def test_packed_files_cut_short_or_of_something_else_are_refused(tmp_path: Path) -> None:
    store = _study(tmp_path)
    store.pack()
    whole = store.packed.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"text"):
        store.packed.write_bytes(content)
        with pytest.raises(FormatError, match=r"damaged.*restore it from a copy"):
            store.facts()
    _rows().to_parquet(store.packed)
    with pytest.raises(FormatError, match="holds no packed results of a study; move it elsewhere"):
        store.table()


def test_packing_refuses_damaged_strange_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no results"):
        ResultStore(tmp_path / "nowhere").pack()
    store = _study(tmp_path)
    file = next(store.results.glob("aids/model0*"))
    copy = file.with_name("copy.parquet")
    copy.write_bytes(file.read_bytes())
    with pytest.raises(FormatError, match=r"copy.parquet holds the results of aids model0; delete it"):
        store.pack()
    copy.write_bytes(b"")
    with pytest.raises(FormatError, match=r"copy.parquet is damaged"):
        store.pack()
    copy.unlink()
    assert store.pack() == 8


def test_files_stay_where_the_packed_one_cannot_be_written_or_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _study(tmp_path)
    table = store.table()

    def refuse(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    def lose_a_byte(path: Path, content: bytes) -> None:
        path.write_bytes(content[:-1])

    monkeypatch.setattr(module, "write_whole", refuse)
    with pytest.raises(OSError, match="No space left on device"):
        store.pack()
    assert store.table().equals(table)
    monkeypatch.setattr(module, "write_whole", lose_a_byte)
    with pytest.raises(OSError, match="is not what was written to it; the files of the tasks stay"):
        store.pack()
    assert len(list(store.results.glob("*/*.parquet"))) == 8
