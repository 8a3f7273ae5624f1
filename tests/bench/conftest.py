"""The command `sstorch` in this process, and what it prints."""

from collections.abc import Callable

import pytest

from tests.app import sstorch

App = Callable[..., tuple[int, str, str]]
Refused = Callable[..., str]


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> App:
    """Run the command: exit code, what it printed, its notes and errors."""

    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = sstorch(monkeypatch, *map(str, words))
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.fixture
def refused(app: App) -> Refused:
    """Run the command in vain: the one line of its error."""

    def run(*words: object) -> str:
        code, _, err = app(*words)
        (line,) = err.splitlines()
        assert (code, line[:16]) == (2, "sstorch: error: ")
        return line

    return run
