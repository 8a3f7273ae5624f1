"""The command `sstorch` in this process and what it prints; a file of rows."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
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


@pytest.fixture(scope="session")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 160 rows: a number with holes, a 0/1 column and words, of which one has a sign of HTML."""
    draws, path = np.random.default_rng(5), tmp_path_factory.mktemp("cohort") / "cohort.csv"
    frame = pd.DataFrame(
        {
            "age": draws.uniform(40, 80, 160).round(1),
            "shock": draws.integers(0, 2, 160),
            "ward": draws.choice(["a", "b<2>", "c"], 160),
        }
    )
    time = 900 * draws.weibull(1.2, 160) * np.exp(-0.04 * (frame["age"] - 60) - frame["shock"]) + 1
    censored = draws.uniform(100, 2000, 160)
    frame["days"], frame["died"] = np.minimum(time, censored).round(1), (time <= censored).astype(int)
    frame.loc[3:6, "age"] = np.nan
    frame.to_csv(path, index=False)
    return path
