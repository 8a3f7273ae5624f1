"""Records what this package computes, so that a change that must change nothing can be checked.

python -m tests.reference.record --out FILE      writes down objectives, predictions, files, names ...
python -m tests.reference.record --check FILE    records anew and prints every difference; exit code 1 on any

Both on the same machine: the values are exact, so other processors or other versions of torch and numpy give
others. So no test runs it and no record is kept in the repository: record at one commit, check at another.

Sections can be taken one by one (``--sections soft names``): ``soft`` (soft trees), ``selection`` (searches,
cross-validation, scores, baselines), ``exact`` (exact trees), ``metrics``,
``studies`` (the command line: runs, a study, and the tasks that the shipped studies plan) and ``names``
(public names with their signatures). Numbers are in hexadecimal notation, in order; what is long is a
checksum. Left out are versions, durations, dates and paths: of a saved model's JSON the versions and the
checksums over them, of a search the seconds, of a study's facts versions, seconds and date.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import scipy
import sklearn
import torch
from threadpoolctl import threadpool_limits

from sstorch.exceptions import DataWarning
from tests.reference.exact_text import public_names
from tests.reference.models import EXACT, SELECTION, SOFT
from tests.reference.scores import METRICS
from tests.reference.studies import STUDIES

Entry = dict[str, str]
Record = dict[str, dict[str, Entry]]

MODULES = (
    "sstorch",
    "sstorch.data",
    "sstorch.nn",
    "sstorch.nn.hazards",
    "sstorch.objective",
    "sstorch.optim",
    "sstorch.exact",
    "sstorch.exact.fronts",
    "sstorch.metrics",
    "sstorch.soft",
    "sstorch.exact.estimators",
    "sstorch.reading",
    "sstorch.validation",
    "sstorch.deploy",
    "sstorch.bench",
    "sstorch.bench.baselines",
    "sstorch.bench.report",
    "sstorch.monitoring",
    "sstorch.plots",
)


def machine() -> Entry:
    """What the values depend on in addition to this package."""
    packages = {"numpy": np, "pandas": pd, "scipy": scipy, "scikit-learn": sklearn, "torch": torch}
    return {
        "python": platform.python_version(),
        **{name: package.__version__ for name, package in packages.items()},
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


SECTIONS: dict[str, Mapping[str, Callable[[], Entry]]] = {
    "machine": {"versions": machine},
    "soft": SOFT,
    "selection": SELECTION,
    "exact": EXACT,
    "metrics": METRICS,
    "studies": STUDIES,
    "names": {name: partial(public_names, name, MODULES[:k]) for k, name in enumerate(MODULES)},
}


def record(sections: list[str], verbose: bool) -> Record:
    """Compute the sections; a case that fails has the error as its entry."""
    results: Record = {}
    for section in sections:
        results[section] = {}
        for name, case in SECTIONS[section].items():
            begin = time.perf_counter()
            torch.manual_seed(0)
            np.random.seed(0)  # noqa: NPY002  whoever draws from it must not make the record differ
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    entry = case()
                except Exception as error:
                    entry = {"error": f"{type(error).__name__}: {error}"}
                    print(f"{section}: {name}: {entry['error']}", file=sys.stderr)
            notes = {str(item.message) for item in caught if issubclass(item.category, DataWarning)}
            results[section][name] = entry | ({"warnings": " | ".join(sorted(notes))} if notes else {})
            if verbose:
                print(f"{time.perf_counter() - begin:6.2f} s  {section}: {name}", file=sys.stderr)
    return results


def differences(before: Record, now: Record) -> list[str]:
    """Every value that is not the same, or is in one record alone."""
    lines = []
    for section in now:
        for case in dict.fromkeys((*before.get(section, {}), *now[section])):
            old, new = (found.get(section, {}).get(case) for found in (before, now))
            if old is None or new is None:
                lines.append(f"{section}: {case}: only {'now' if old is None else 'before'}")
                continue
            for key in dict.fromkeys((*old, *new)):
                if old.get(key) != new.get(key):
                    lines.append(f"{section}: {case}: {key}: {_change(old.get(key), new.get(key))}")
    return lines


def _change(old: str | None, new: str | None) -> str:
    """The first elements that differ, and how many do."""
    if old is None or new is None:
        return f"only {'now' if old is None else 'before'}: {(old or new or '')[:120]}"
    pairs = list(zip(old.split(" "), new.split(" "), strict=False))
    changed = [(one, two) for one, two in pairs if one != two]
    if len(old.split(" ")) != len(new.split(" ")) or not changed:
        return f"{old[:160]} -> {new[:160]}"
    largest = max(_relative(one, two) for one, two in changed)
    return (
        f"{changed[0][0]} -> {changed[0][1]} ({len(changed)} of {len(pairs)} words; "
        f"largest relative difference {largest:.1e})"
    )


def _relative(old: str, new: str) -> float:
    """Relative difference of two numbers in hexadecimal notation; infinity of other words."""
    try:
        one, two = float.fromhex(old), float.fromhex(new)
    except ValueError:
        return math.inf
    return abs(one - two) / max(abs(one), abs(two))


def main() -> int:
    """Record, and write or compare; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--out", type=Path, help="file to write")
    action.add_argument("--check", type=Path, help="file to compare with")
    parser.add_argument("--sections", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--verbose", action="store_true", help="print the seconds of every case")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # of processes that are started from here
    begin = time.perf_counter()
    with threadpool_limits(1):
        results = record(options.sections, options.verbose)
    count = sum(len(entry) for cases in results.values() for entry in cases.values())
    print(f"{count} values in {time.perf_counter() - begin:.0f} s")
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        return 0
    lines = differences(json.loads(options.check.read_text()), results)
    print("\n".join([*lines, f"{len(lines)} differences from {options.check}"]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
