"""Records what this package computes, so that a change can be checked against the commit before it.

python -m tests.reference.record --out FOLDER     writes values.npz, files.json and names.json
python -m tests.reference.record --check FOLDER   records anew, prints every difference; exit code 1 on any
        --rtol 1e-10                              two numbers this close are equal (0: bit for bit)
        --parts values                            what is compared: values, files, names
        --cases "soft.*leaf"                      a regular expression: the cases to record
        --only-common                             entries that one record lacks are counted, not printed

``values`` are numbers: arrays under stable keys ``section/case/name``, with a tolerance. ``files`` are
checksums of saved models and of texts, ``names`` the public names with their signatures. Record a commit and
its parent on one machine with the same packages: the values of other processors and other versions differ.
So no test runs this, and no record is kept in the repository. A commit that has another version of this
folder takes a copy of it. Left out are versions, durations, dates and paths.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from threadpoolctl import threadpool_limits

from sstorch.exceptions import DataWarning
from tests.reference.exact_text import TIMED, public_names, sha
from tests.reference.models import ESTIMATED, EXACT, SELECTION, SOFT
from tests.reference.scores import METRICS
from tests.reference.studies import STUDIES

Values = dict[str, npt.NDArray[np.float64]]
Texts = dict[str, str]

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


CASES: dict[str, Callable[[], Mapping[str, Any]]] = {
    f"{section}/{name}": case
    for section, cases in {
        "soft": SOFT,
        "estimated": ESTIMATED,
        "selection": SELECTION,
        "exact": EXACT,
        "metrics": METRICS,
        "studies": STUDIES,
    }.items()
    for name, case in cases.items()
}


def leaves(key: str, value: object) -> Iterator[tuple[str, npt.NDArray[np.float64] | str]]:
    """The numbers and the texts of a value by key: tables by column, containers by item."""
    if isinstance(value, pd.Series):
        value = value.to_frame()
    if isinstance(value, pd.DataFrame):
        for name in (name for name in value.columns if name not in TIMED):
            if value.index.is_unique and value.index.dtype.kind == "O":  # rows by name: others may go
                yield from leaves(f"{key}.{name}", dict(value[name]))
            else:
                yield from leaves(f"{key}.{name}", value[name].to_numpy())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from leaves(f"{key}.{field.name}", getattr(value, field.name))
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if name not in TIMED:
                yield from leaves(f"{key}.{name}", item)
    elif isinstance(value, str) or value is None:
        yield key, str(value)
    else:
        array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else _array(value)
        if array is not None and array.dtype.kind in "biuf":
            yield key, array.astype(np.float64)
        elif isinstance(value, list | tuple):
            for number, item in enumerate(value):
                yield from leaves(f"{key}.{number}", item)
        else:
            yield key, " ".join(map(str, np.ravel(array).tolist())) if array is not None else str(value)


def _array(value: object) -> npt.NDArray[Any] | None:
    """A value as an array, where it is one."""
    try:
        return np.asarray(value)
    except ValueError:  # lists of unequal length
        return None


def record(pattern: str, verbose: bool) -> tuple[Values, Texts]:
    """Compute the cases that match; a case that fails has the error as its only text."""
    values: Values = {}
    texts: Texts = {}
    for name, case in CASES.items():
        if not re.search(pattern, name):
            continue
        begin = time.perf_counter()
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002  whoever draws from it must not make the record differ
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                entry = dict(case())
            except Exception as error:
                entry = {"error": f"{type(error).__name__}: {error}"}
                print(f"{name}: {entry['error']}", file=sys.stderr)
        notes = sorted({str(item.message) for item in caught if issubclass(item.category, DataWarning)})
        for key, value in leaves(name, entry | ({"warnings": notes} if notes else {})):
            if isinstance(value, str):
                texts[key] = value if len(value) < 200 else f"{value[:100]} ... {sha(value)}"
            else:
                values[key] = value
        if verbose:
            print(f"{time.perf_counter() - begin:6.2f} s  {name}", file=sys.stderr)
    return values, texts


def names() -> Texts:
    """Public names of every module with their signatures."""
    return {
        f"{module}: {name}": text
        for k, module in enumerate(MODULES)
        for name, text in public_names(module, MODULES[:k]).items()
    }


def changed(before: npt.NDArray[np.float64], now: npt.NDArray[np.float64], rtol: float) -> str | None:
    """How two arrays differ, or None where they do not by more than the tolerance."""
    if before.shape != now.shape:
        return f"shape {before.shape} -> {now.shape}"
    same = (before == now) | (np.isnan(before) & np.isnan(now))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        relative = np.abs(before - now) / np.maximum(np.abs(before), np.abs(now))
    apart = ~same & ~(relative <= rtol)
    if not apart.any():
        return None
    place = int(np.flatnonzero(apart.ravel())[0])
    largest = np.nanmax(np.where(apart, np.nan_to_num(relative, nan=np.inf), 0.0))
    return (
        f"{before.ravel()[place]!r} -> {now.ravel()[place]!r} "
        f"({int(apart.sum())} of {before.size}; largest relative difference {largest:.1e})"
    )


def differences(
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    compare: Callable[[Any, Any], str | None],
    only_common: bool,
) -> list[str]:
    """A line for each entry that differs, and for each that one side lacks."""
    lines = [
        f"{key}: {text}"
        for key in before
        if key in now and (text := compare(before[key], now[key])) is not None
    ]
    for label, keys in (("before", before.keys() - now.keys()), ("now", now.keys() - before.keys())):
        lines += [f"{len(keys)} only {label}"] if only_common else [f"{key}: only {label}" for key in keys]
    return lines if not only_common or len(lines) > 2 else []


def main() -> int:
    """Record, and write or compare; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--out", type=Path, help="folder to write")
    action.add_argument("--check", type=Path, help="folder to compare with")
    parser.add_argument("--rtol", type=float, default=0.0)
    parser.add_argument("--parts", nargs="+", choices=["values", "files", "names"], default=["values"])
    parser.add_argument("--cases", default="")
    parser.add_argument("--only-common", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="print the seconds of every case")
    options = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # of processes that are started from here
    begin = time.perf_counter()
    with threadpool_limits(1):
        values, texts = record(options.cases, options.verbose)
    print(f"{len(values)} arrays, {len(texts)} texts in {time.perf_counter() - begin:.0f} s")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(options.out / "values.npz", **values)
        for file, content in {"files": texts, "names": names()}.items():
            (options.out / f"{file}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False))
        return 0
    count = 0
    for part in options.parts:
        if part == "values":
            before: dict[str, Any] = dict(np.load(options.check / "values.npz"))
            now: Mapping[str, Any] = values
        else:
            before = json.loads((options.check / f"{part}.json").read_text())
            now = texts if part == "files" else names()
        if part != "names" and options.cases:
            chosen = tuple(f"{name}." for name in CASES if re.search(options.cases, name))
            before = {key: value for key, value in before.items() if key.startswith(chosen)}

        def compare(old: Any, new: Any, numbers: bool = part == "values") -> str | None:
            if numbers:
                return changed(old, new, options.rtol)
            return None if old == new else f"{old} -> {new}"

        lines = differences(before, now, compare, options.only_common)
        count += len(lines)
        print("\n".join([*lines, f"{part}: {len(lines)} differences in {len(before)} entries"]))
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
