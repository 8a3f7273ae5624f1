"""The page of a validation, the facts on it, and the checklist of TRIPOD+AI filled with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.figure import Figure

from sstorch._version import __version__
from sstorch.data.time_unit import duration
from sstorch.document import ABSENT, Block, Code, Document, Picture, Section, as_table, number
from sstorch.exceptions import DataError
from sstorch.metrics.groups import median_follow_up
from sstorch.metrics.horizon import HorizonRows
from sstorch.metrics.measures import MEASURES

APPARENT = (
    "Apparent: these are the training rows, on which the model looks better than on others. Validate on "
    "other rows, or correct for optimism by n_refits=100"
)
_MEANINGS = (
    "Concordance, AUC: order of the predictions, .5 without any. Observed over expected above 1, and an "
    "intercept above 0: too few events were predicted. Slope below 1: predictions are too extreme. ICI and "
    "the errors below it: distances from the calibration curve. Scaled Brier score: gain over one prediction "
    "for all."
)
_CHECKLIST = (
    "The items of TRIPOD+AI (Collins et al. 2024, BMJ 385, e078378) in other words: what rows and model "
    "show, and what the authors have to add or to check. What counts is the wording of the statement."
)


# A ValidationReport, whose module imports this one.
Report = Any


def name_of_net_benefit(threshold: float) -> str:
    """Name of the net benefit at a threshold in the table."""
    return f"net_benefit({threshold:g})"


def document(report: Report) -> Document:
    """Tables, figures and the checklist; with competing causes those of each cause."""
    facts, sections = report.facts, list[Section]()
    for cause in report.rows:
        parts = [
            ("Performance", _performance(report, cause)),
            (f"Calibration at {facts.at_horizon}", _calibration(report, cause)),
            ("Clinical use", _decisions(report, cause)),
        ]
        for title, blocks in parts:
            sections.append(Section(f"{cause}: {title[0].lower()}{title[1:]}" if cause else title, blocks))
    sections.append(Section("The rows", [_rows(facts)]))
    if facts.summary:
        sections.append(Section("The model", [Code(facts.summary)], folded=True))
    title = "Validation"
    if facts.apparent:
        title = "Apparent validation"
        sections.insert(0, Section(title, [f"{APPARENT}."]))
    items = [
        [f"{item} {row['topic']}", row["reported"] or ABSENT, row["left"]]
        for item, row in report.tripod().iterrows()
    ]
    checked = as_table(["item", "reported by this validation", "to be written"], items)
    sections.append(Section("TRIPOD+AI", [_CHECKLIST, checked]))
    n = facts.n_rows
    subtitle = f"{facts.model} on {n} row{'s' * (n != 1)}, predictions at {facts.at_horizon}"
    return Document(title, subtitle, sections)


def _table_of(report: Report, cause: str) -> pd.DataFrame:
    return pd.DataFrame(report.table.xs(cause)) if cause else report.table


def _performance(report: Report, cause: str) -> list[Block]:
    table = _table_of(report, cause)
    shown = table.loc[[name for name in table.index if name in MEASURES]]
    columns = {
        "value": shown["value"],
        **({"corrected for optimism": shown["corrected"]} if "corrected" in shown else {}),
        f"{100 * report.facts.level:g} %": _limits(shown),
        "ideal": [f"{ideal:g}" for ideal in shown["ideal"]],
        "limits by": shown["method"],
    }
    blocks: list[Block] = [pd.DataFrame(columns).rename(index=lambda name: MEASURES[name].title)]
    undefined: dict[str, list[str]] = {}
    for name, reason in table["reason"].items():
        if reason:
            undefined.setdefault(reason, []).append(MEASURES[name].title if name in MEASURES else str(name))
    if undefined:
        blocks.append([f"{', '.join(titles)}: {reason}" for reason, titles in undefined.items()])
    return [*blocks, _MEANINGS]


def _limits(table: pd.DataFrame) -> list[str]:
    return [
        f"{number(lower)} to {number(upper)}" if np.isfinite(lower) else ABSENT
        for lower, upper in zip(table["lower"], table["upper"], strict=True)
    ]


def _calibration(report: Report, cause: str) -> list[Block]:
    figure = Figure(figsize=(4.8, 4.8), layout="constrained")
    try:
        report.plot_calibration(figure.subplots(), cause or None)
    except DataError as error:
        return [f"No curve. {error}"]
    what = "incidence" if cause else "survival"
    caption = (
        f"Observed {what}, a regression of pseudo-values, against predicted {what}, with a pointwise band of "
        f"{100 * report.facts.level:g} %; on the diagonal both agree. The histogram is of the predictions."
    )
    distance = number(_table_of(report, cause)["value"]["ici"])
    words = f"Calibration curve. Mean distance from the diagonal {distance}."
    return [Picture(f"calibration{cause}", figure, caption, words)]


def _decisions(report: Report, cause: str) -> list[Block]:
    facts, figure = report.facts, Figure(figsize=(4.9, 4.0), layout="constrained")
    report.plot_decision_curve(figure.subplots(), cause or None)
    caption = (
        f"Net benefit of acting on those whose predicted risk by {facts.at_horizon} is at least the "
        "threshold, compared with acting on all and on none; in events found at no cost, per subject."
    )
    shown = _table_of(report, cause).loc[[name_of_net_benefit(each) for each in facts.thresholds]]
    words = [
        f"At {each:g}: {number(value)}." for each, value in zip(facts.thresholds, shown["value"], strict=True)
    ]
    picture = Picture(f"decisions{cause}", figure, caption, " ".join(["Decision curve.", *words]))
    columns = {"net benefit": shown["value"], f"{100 * facts.level:g} %": _limits(shown)}
    table = pd.DataFrame(columns).set_axis([f"{100 * each:g} %" for each in facts.thresholds])
    return [picture, table.rename_axis(columns="threshold")]


def _rows(facts: Facts) -> pd.DataFrame:
    entries = [
        ("numbers", facts.rows),
        ("follow-up", facts.follow_up),
        ("columns", ", ".join(facts.columns)),
        ("cells", facts.missing),
        ("resamples", f"{facts.n_resamples}, seed {facts.random_state}"),
        ("version", f"sstorch {__version__}"),
    ]
    return as_table(["", "all rows"], entries)


@dataclass(frozen=True)
class Facts:
    """Facts of a validation, as text where they are only shown."""

    model: str  # class of the model
    summary: str  # its ``summary()``, if it has one
    n_fitted: int | None  # rows that it was fitted to, if recorded
    columns: tuple[str, ...]  # names of the features that it was given
    missing: str  # shares of missing cells
    n_rows: int  # from a landmark on those at risk then
    n_by_horizon: int  # events of any cause up to the horizon
    causes: tuple[str, ...]  # none for one event
    at_horizon: str  # the time of the predictions
    follow_up: str  # median and longest
    rows: str  # subjects, events, weights, left truncation, landmark
    thresholds: tuple[float, ...]  # of the risk, increasing
    n_resamples: int  # of the bootstrap
    level: float  # of the limits
    random_state: int  # seed of the bootstrap
    apparent: bool  # whether the rows are those that the model was trained on

    @classmethod
    def of(
        cls,
        model: Any,
        X: Any,
        parts: dict[str, HorizonRows],
        after: float | None,
        time_unit: str,
        **options: Any,
    ) -> Self:
        """Facts of a model and of rows, by name of the cause; options are the last fields."""
        rows = next(iter(parts.values()))
        # Arrays of text and numbers have cells of any kind; frames of other libraries are read as arrays.
        frame = X if isinstance(X, pd.DataFrame) else _as_frame(np.asarray(X))
        share = frame.isna().mean()
        missing = ", ".join(f"{name} {100 * part:.1f} %" for name, part in share[share > 0].items())
        text = model.summary() if callable(getattr(model, "summary", None)) else None
        n_fitted, seen = getattr(model, "n_samples_fit_", None), rows.y.time <= rows.t
        at_horizon = duration(rows.t, time_unit)
        if after is not None:
            at_horizon += f" after {duration(after, time_unit)}"
        n, middle = len(rows), median_follow_up(rows.y).value
        counted = [
            f"{n} participants" if rows.n_subjects == n else f"{rows.n_subjects} participants, {n} rows"
        ]
        counted.append(f"{rows.y.event.sum()} events")
        counted.append(f"{(rows.y.event & seen).sum()} of them up to {at_horizon}")
        by_cause = [f"{(part.interest & seen).sum()} {name}" for name, part in parts.items() if name]
        counted[-1] += f" ({', '.join(by_cause)})" if by_cause else ""
        kinds = {
            f"at risk at {duration(after or 0.0, time_unit)} and followed from there": after is not None,
            "left truncation": rows.y.entry is not None,
            "weighted": rows.y.weight is not None,
        }
        counted.append("; ".join([f"{(~seen).sum()} followed beyond", *(k for k, on in kinds.items() if on)]))
        start = "apparent validation, on the training rows: " if options["apparent"] else ""
        known = f"median follow-up {duration(middle, time_unit)} (reverse Kaplan-Meier), "
        return cls(
            model=type(model).__name__,
            summary=text if isinstance(text, str) else "",
            n_fitted=None if n_fitted is None else int(n_fitted),
            columns=tuple(map(str, getattr(X, "columns", frame.columns))),
            missing=f"missing: {missing}" if missing else "no cell of a predictor is missing",
            n_rows=n,
            n_by_horizon=int((rows.y.event & seen).sum()),
            causes=tuple(name for name in parts if name),
            at_horizon=at_horizon,
            follow_up=f"{known * bool(np.isfinite(middle))}longest {duration(rows.y.time.max(), time_unit)}",
            rows=start + ", ".join(counted),
            **options,
        )


def _as_frame(X: npt.NDArray[Any]) -> pd.DataFrame:
    """An array as a frame; one of more dimensions, such as images, as one column of its incomplete rows."""
    if X.ndim <= 2:
        return pd.DataFrame(X)
    complete = ~pd.isna(X).reshape(len(X), -1).any(1)
    name = f"array of shape {' x '.join(map(str, X.shape[1:]))}"
    return pd.DataFrame({name: np.where(complete, 0.0, np.nan)})


def checklist(report: Report) -> pd.DataFrame:
    """All items, in our words, with what is known of them; see `ValidationReport.tripod`."""
    table = pd.read_csv(Path(__file__).with_name("tripod.csv"), dtype=str, index_col="item")
    reported = _reported(report)
    table.insert(1, "reported", [reported.get(item, "") for item in table.index])
    return table


# Measures of performance that the checklist shows.
_SHOWN = {
    "c_harrell_t",
    "c_wolbers",
    "c_cause_specific",
    "auc",
    "oe_ratio",
    "calibration_slope",
    "scaled_brier",
}


def _reported(report: Report) -> dict[str, str]:
    """Known entries, by number of the item."""
    facts, performance = report.facts, []
    for name, row in report.table.iterrows():
        names = name if isinstance(name, tuple) else (name,)
        if names[-1] in _SHOWN and np.isfinite(row["value"]):
            limits = f"{row['value']:.3f} ({row['lower']:.3f} to {row['upper']:.3f})"
            performance.append(f"{' of '.join(reversed(names))} {limits}")
    model = facts.model if facts.n_fitted is None else f"{facts.model}, fitted to {facts.n_fitted} rows"
    outcome, weights = "time to event", "weights and Kaplan-Meier"
    if facts.causes:
        outcome, weights = f"cumulative incidence of {', '.join(facts.causes)}", "weights and Aalen-Johansen"
    return {
        "4": f"evaluation of a fitted {facts.model} on {facts.n_rows} rows",
        "5b": facts.follow_up,
        "8a": f"{outcome}, predicted at {facts.at_horizon}; censoring by {weights}",
        "9a": f"{len(facts.columns)} columns: {', '.join(facts.columns)}",
        "10": f"{facts.n_by_horizon} events up to {facts.at_horizon}; 100 to 200 are often required",
        "11": facts.missing,
        "12a": f"all {facts.n_rows} rows for evaluation",
        "12c": model,
        "12e": (
            "concordance, AUC, O/E, intercept, slope, ICI, Brier score and net benefit, with limits of "
            f"{100 * facts.level:g} %; bootstrap of {facts.n_resamples} resamples, seed "
            f"{facts.random_state}; calibration plot and decision curve"
        ),
        "12g": f"{facts.model}.predict_survival_function, sstorch {__version__}",
        "15": f"survival at {facts.at_horizon}; thresholds of the risk: "
        + ", ".join(f"{threshold:g}" for threshold in facts.thresholds),
        "20b": f"{facts.missing}; {facts.follow_up}",
        "21": facts.rows,
        "22": "see the model's own account on this page" if facts.summary else "",
        "23a": "; ".join(performance),
    }
