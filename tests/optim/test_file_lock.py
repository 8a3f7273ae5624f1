"""A lock that many want at once, and that its holder removes."""

import threading
from pathlib import Path

import pytest

from sstorch.exceptions import ConfigError
from sstorch.optim.file_lock import FileLock


def test_one_holder_at_a_time_however_often_the_file_comes_and_goes(tmp_path: Path) -> None:
    inside, most, taken, errors = 0, 0, 0, []

    def take_many() -> None:
        nonlocal inside, most, taken
        try:
            for _ in range(3000):
                lock = FileLock(tmp_path / "lock")
                if lock.try_acquire():
                    inside += 1
                    most = max(most, inside)
                    taken += 1
                    inside -= 1
                    lock.release()
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
    assert not (tmp_path / "lock").exists()


def test_a_lock_that_is_held_is_refused(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    first.acquire()
    with pytest.raises(ConfigError, match="another run is writing beside"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()
