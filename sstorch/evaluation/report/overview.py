"""What was run, when and with which versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sstorch.evaluation.report.document import Block, Cell, Paragraph, Section, Table
from sstorch.evaluation.report.models import by_family
from sstorch.evaluation.report.results import Results


def run_section(results: Results) -> Section:
    """What was run: data sets, models, folds, starts, dates and versions."""
    rows = [
        _row("data sets", f"{len(results.datasets)}: {', '.join(results.datasets)}"),
        *(
            _row(family, ", ".join(model.label for model in members))
            for family, members in by_family(results.models).items()
        ),
        _row("metrics", ", ".join(results.metrics)),
        _row("folds x starts", _grids(results)),
        *_protocol(results),
        _row("tasks", str(len(results.rows[["dataset", "key"]].drop_duplicates()))),
    ]
    finished = sorted(str(own["finished"]) for own in results.facts.values() if own.get("finished"))
    if finished:
        rows.append(
            _row(
                "finished", finished[0] if finished[0] == finished[-1] else f"{finished[0]} to {finished[-1]}"
            )
        )
    table = Table("", ["", "this study"], rows, left=frozenset({1}))
    return Section("What was run", [table, *_versions(results)])


def _row(name: str, text: str) -> list[Cell]:
    return [Cell(name), Cell(text)]


def _protocol(results: Results) -> list[list[Cell]]:
    """Seed of the folds and device, as far as they are recorded."""
    rows = []
    for name, title in (("seed", "seed of the folds"), ("device", "device")):
        counts = Counter(str(own[name]) for own in results.facts.values() if name in own)
        texts = [f"{value} ({count} task{'s' * (count > 1)})" for value, count in sorted(counts.items())]
        if texts:
            rows.append(
                _row(title, next(iter(counts)) if len(texts) == 1 else "tasks differ: " + "; ".join(texts))
            )
    return rows


def _grids(results: Results) -> str:
    grids = Counter(
        (int(folds), int(starts))
        for folds, starts in results.rows.groupby(["dataset", "key"], observed=True)[["fold", "start"]]
        .nunique()
        .itertuples(index=False)
    )
    return "; ".join(
        f"{folds} x {starts} ({count} task{'s' * (count > 1)})"
        for (folds, starts), count in sorted(grids.items())
    )


def _versions(results: Results) -> Sequence[Block]:
    """Versions of the packages; where tasks differ, each with its number of tasks."""
    found: dict[str, Counter[str]] = {}
    for own in results.facts.values():
        for package, version in own.get("versions", {}).items():
            found.setdefault(str(package), Counter())[str(version)] += 1
    if not found:
        return [Paragraph("The versions of the packages are not recorded.")]
    rows = []
    for package in sorted(found):
        versions = sorted(found[package].items())
        if len(versions) == 1:
            text = versions[0][0]
        else:
            text = "tasks differ: " + ", ".join(
                f"{version} ({count} task{'s' * (count > 1)})" for version, count in versions
            )
        rows.append(_row(package, text))
    return [Section("Versions", [Table("", ["package", "version"], rows, left=frozenset({1}))], folded=True)]
