"""The report of a sweep: a row for each of its runs, with what was set and how it scored on held-out rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from omegaconf import OmegaConf

from sstorch.document import Cell, Document, Paragraph, Section, Table
from sstorch.exceptions import ConfigError
from sstorch.metrics.registry import METRICS

# Columns of scores.csv that are no scores.
_ABOUT = ("fold", "start", "part", "chosen", "objective")
_SHOWN = 3


def runs_of_sweep(folder: Path) -> list[Path]:
    """Folders of the runs of a sweep, in the order of its jobs; none if the folder is no sweep."""
    runs = [path.parent for path in folder.glob("*/config.yaml") if (path.parent / "status.json").is_file()]
    return sorted(runs, key=lambda run: (not run.name.isdigit(), int(run.name) if run.name.isdigit() else 0))


def sweep_report(folder: Path) -> Document:
    """Settings that differ between the runs, their scores with standard errors over folds, and the best."""
    runs = runs_of_sweep(folder)
    done = [run for run in runs if json.loads((run / "status.json").read_text())["status"] == "completed"]
    if not done:
        raise ConfigError(f"{folder} holds a sweep of {len(runs)} runs, none of them completed")
    configs = [_flat(OmegaConf.to_container(OmegaConf.load(run / "config.yaml"))) for run in done]
    known = dict.fromkeys(name for config in configs for name in config)
    varied = [name for name in known if len({repr(config.get(name)) for config in configs}) > 1]
    scores = [_scores(pd.read_csv(run / "scores.csv")) for run in done]
    names = [name for name in scores[0] if all(name in own for own in scores)][:_SHOWN]
    if not names:
        raise ConfigError(f"the runs of {folder} have no score in common")
    means = np.array([own[names[0]][0] for own in scores])
    higher = METRICS[names[0].partition(":")[0]].higher_is_better
    best = int(np.nanargmax(means if higher else -means)) if not np.isnan(means).all() else None
    rows = [
        [
            Cell(run.name),
            *(Cell(str(config.get(name, "-"))) for name in varied),
            *(Cell(f"{own[name][0]:.4f} ({own[name][1]:.4f})", best=k == best) for name in names),
        ]
        for k, (run, config, own) in enumerate(zip(done, configs, scores, strict=True))
    ]
    table = Table("", ["run", *varied, *names], rows, left=frozenset(range(1, len(varied) + 1)))
    chosen = "no run has this score" if best is None else f"run {done[best].name} has the best mean"
    text = (
        f"Means over test folds, with the standard error over folds. By {names[0]} "
        f"({'higher' if higher else 'lower'} is better) {chosen}. The best of many test scores is too good "
        "by selection: confirm it on other rows, or choose by PrognosticTreeCV."
    )
    if len(done) < len(runs):
        text += f" {len(runs) - len(done)} of the runs are not completed and are excluded."
    subtitle = f"{len(done)} completed runs of {len(runs)}"
    return Document("Sweep of settings", subtitle, [Section("Runs", [Paragraph(text), table])])


def _flat(config: Any, above: str = "") -> dict[str, Any]:
    """Settings by dotted name."""
    if not isinstance(config, Mapping) or not config:
        return {above: config}
    out: dict[str, Any] = {}
    for name, value in config.items():
        out |= _flat(value, f"{above}.{name}" if above else str(name))
    return out


def _scores(table: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Mean over test folds and its standard error, by score."""
    tests = table[(table["part"] == "test") & table["chosen"]]
    out = {}
    for name in tests.columns.drop(list(_ABOUT), errors="ignore"):
        values = tests[name].to_numpy(dtype=np.float64)
        if name.partition(":")[0] in METRICS and not np.isnan(values).all():
            error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan
            out[str(name)] = (float(np.mean(values)), error)
    return out
