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
    at = facts.at_horizon
    entries = [
        ("rows", str(facts.n_rows)),
        *([("subjects", str(facts.n_subjects))] if facts.n_subjects != facts.n_rows else []),
        ("events", str(facts.n_events)),
        (f"events up to {at}", str(facts.n_by_horizon)),
        *((f"{name} up to {at}", str(count)) for name, count in facts.events.items()),
        *([("landmark", facts.with_unit(facts.after))] if facts.after is not None else []),
        *([("left truncation", "yes")] if facts.late else []),
        *([("weights", "uneven")] if facts.weighted else []),
        (f"followed beyond {at}", str(facts.n_followed)),
        (
            "median follow-up (reverse Kaplan-Meier)",
            facts.with_unit(facts.follow_up) if np.isfinite(facts.follow_up) else "not reached",
        ),
        ("longest follow-up", facts.with_unit(facts.last_time)),
        ("columns", ", ".join(facts.columns)),
        ("cells", facts.missing_text),
        ("resamples", f"{facts.n_resamples}, seed {facts.random_state}"),
        ("version", f"sstorch {__version__}"),
    ]
    return as_table(["", "all rows"], entries)


def _as_frame(X: npt.NDArray[Any]) -> pd.DataFrame:
    """An array as a frame; one of more dimensions, such as images, as one column of its incomplete rows."""
    if X.ndim <= 2:
        return pd.DataFrame(X)
    complete = ~pd.isna(X).reshape(len(X), -1).any(1)
    name = f"array of shape {' x '.join(map(str, X.shape[1:]))}"
    return pd.DataFrame({name: np.where(complete, 0.0, np.nan)})


@dataclass(frozen=True)
class Facts:
    """Facts of a validation."""

    model: str  # class of the model
    summary: str  # the lines of its ``summary()``, if it has one
    n_fitted: int | None  # rows that it was fitted to, if recorded
    columns: tuple[str, ...]  # names of the features that it was given
    missing: dict[str, float]  # share of missing cells of each column that has some
    n_rows: int  # of the validation; from a landmark on those at risk then
    n_subjects: int  # of these rows
    n_events: int  # of all of follow-up, of any cause
    n_by_horizon: int  # events up to the horizon
    events: dict[str, int]  # of each cause up to the horizon, by name; empty for one event
    n_followed: int  # rows still followed at the horizon
    follow_up: float  # median by reverse Kaplan-Meier; infinite where it is not reached
    last_time: float  # the longest observed
    late: bool  # whether rows entered after time zero
    weighted: bool  # whether rows have uneven weights
    horizon: float  # of the predictions
    thresholds: tuple[float, ...]  # of the risk, increasing
    time_unit: str  # of all times, or ""
    n_resamples: int  # of the bootstrap
    level: float  # of the limits
    random_state: int  # seed of the bootstrap
    after: float | None  # landmark from which times count; None for time zero
    apparent: bool  # whether the rows are those that the model was trained on

    @classmethod
    def of(cls, model: Any, X: Any, parts: dict[str, HorizonRows], **options: Any) -> Self:
        """Facts of a model and of rows, by name of the cause; options are the last fields."""
        rows = next(iter(parts.values()))
        # Arrays of text and numbers have cells of any kind; frames of other libraries are read as arrays.
        frame = X if isinstance(X, pd.DataFrame) else _as_frame(np.asarray(X))
        share = frame.isna().mean()
        summary = getattr(model, "summary", None)
        text = summary() if callable(summary) else None
        n_fitted = getattr(model, "n_samples_fit_", None)
        seen = rows.y.time <= rows.t
        return cls(
            model=type(model).__name__,
            summary=text if isinstance(text, str) else "",
            n_fitted=None if n_fitted is None else int(n_fitted),
            columns=tuple(map(str, getattr(X, "columns", frame.columns))),
            missing={str(name): float(part) for name, part in share.items() if part > 0},
            n_rows=len(rows),
            n_subjects=rows.n_subjects,
            n_events=int(rows.y.event.sum()),
            n_by_horizon=int((rows.y.event & seen).sum()),
            events={name: int((part.interest & seen).sum()) for name, part in parts.items() if name},
            n_followed=int((~seen).sum()),
            follow_up=median_follow_up(rows.y).value,
            last_time=float(rows.y.time.max()),
            late=rows.y.entry is not None,
            weighted=rows.y.weight is not None,
            horizon=rows.t,
            **options,
        )

    def with_unit(self, time: float) -> str:
        """A time and its unit."""
        return duration(time, self.time_unit)

    @property
    def at_horizon(self) -> str:
        """The horizon and its unit, from the landmark on if there is one."""
        if self.after is None:
            return self.with_unit(self.horizon)
        return f"{self.with_unit(self.horizon)} after {self.with_unit(self.after)}"

    @property
    def rows_text(self) -> str:
        """Numbers of rows, subjects and events, and what kind of data they are."""
        rows = (
            f"{self.n_rows} participants"
            if self.n_subjects == self.n_rows
            else (f"{self.n_subjects} participants with {self.n_rows} rows")
        )
        by_cause = ", ".join(f"{count} {name}" for name, count in self.events.items())
        causes = f" ({by_cause})" if by_cause else ""
        kinds = [
            f"at risk at {self.with_unit(self.after)} and followed from there"
            if self.after is not None
            else "",
            "left truncation" if self.late else "",
            "weighted" if self.weighted else "",
        ]
        kind = "; ".join(name for name in kinds if name)
        rows = f"apparent validation, on the training rows: {rows}" if self.apparent else rows
        text = (
            f"{rows}, {self.n_events} events, {self.n_by_horizon} of them up to {self.at_horizon}{causes}, "
            f"{self.n_followed} followed beyond"
        )
        return f"{text}; {kind}" if kind else text

    @property
    def missing_text(self) -> str:
        """Shares of missing cells in words."""
        if not self.missing:
            return "no cell of a predictor is missing"
        return "missing: " + ", ".join(f"{name} {100 * share:.1f} %" for name, share in self.missing.items())


def checklist(report: Report) -> pd.DataFrame:
    """All items, in our words, with what is known of them; see `ValidationReport.tripod`."""
    table = pd.read_csv(Path(__file__).with_name("tripod.csv"), dtype=str, index_col="item")
    reported = _reported(report)
    table.insert(1, "reported", [reported.get(item, "") for item in table.index])
    return table


# Measures of performance that the checklist shows.
_SHOWN = {"c_harrell_t", "c_wolbers", "c_cause_specific", "auc", "oe_ratio"}
_SHOWN |= {"calibration_slope", "scaled_brier"}


def _measure_name(name: object) -> str:
    """Name of a row of the table, with its cause."""
    return " of ".join(reversed(name)) if isinstance(name, tuple) else str(name)


def _reported(report: Report) -> dict[str, str]:
    """Known entries, by number of the item."""
    facts = report.facts
    follow_up = (
        f"median follow-up {facts.with_unit(facts.follow_up)} (reverse Kaplan-Meier), longest "
        if np.isfinite(facts.follow_up)
        else "longest follow-up "
    ) + facts.with_unit(facts.last_time)
    thresholds = ", ".join(f"{threshold:g}" for threshold in facts.thresholds)
    percent = f"{100 * facts.level:g} %"
    performance = [
        f"{_measure_name(name)} {row['value']:.3f} ({row['lower']:.3f} to {row['upper']:.3f})"
        for name, row in report.table.iterrows()
        if (name[-1] if isinstance(name, tuple) else name) in _SHOWN and np.isfinite(row["value"])
    ]
    model = facts.model if facts.n_fitted is None else f"{facts.model}, fitted to {facts.n_fitted} rows"
    outcome = f"time to event, predicted at {facts.at_horizon}; censoring by weights and Kaplan-Meier"
    if facts.events:
        causes = ", ".join(facts.events)
        outcome = (
            f"cumulative incidence of {causes}, predicted at {facts.at_horizon}; censoring by weights, "
            "pseudo-values and the estimate of Aalen and Johansen"
        )
    return {
        "4": f"evaluation of a fitted {facts.model} on {facts.n_rows} rows",
        "5b": follow_up,
        "8a": outcome,
        "9a": f"{len(facts.columns)} columns: {', '.join(facts.columns)}",
        "10": f"{facts.n_by_horizon} events up to {facts.at_horizon}; 100 to 200 are often required",
        "11": facts.missing_text,
        "12a": f"all {facts.n_rows} rows for evaluation",
        "12c": model,
        "12e": (
            "concordance, AUC, O/E, intercept, slope, ICI, Brier score and net benefit, with limits of "
            f"{percent}; bootstrap of {facts.n_resamples} resamples, seed {facts.random_state}; calibration "
            "plot and decision curve"
        ),
        "12g": f"{facts.model}.predict_survival_function, sstorch {__version__}",
        "15": f"survival at {facts.at_horizon}; thresholds of the risk: {thresholds}",
        "20b": facts.missing_text + "; " + follow_up,
        "21": facts.rows_text,
        "22": "see the model's own account on this page" if facts.summary else "",
        "23a": "; ".join(performance),
    }
