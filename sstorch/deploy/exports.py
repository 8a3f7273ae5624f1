"""Functions that write a fitted tree as code, program of torch and page, and what they need of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import FloatArray, IntArray
from sstorch.checks import as_numbers, check_after, check_choice, check_same_order, check_tree, sentence_case
from sstorch.data import Surv
from sstorch.data.surv import outcome_of
from sstorch.data.time_unit import round_horizons
from sstorch.deploy.calculator import (
    PAGE_TEXTS,
    Field,
    PageGroup,
    PageNode,
    counted_text,
    duration_text,
    page,
    page_texts,
    say,
    thinned_steps,
)
from sstorch.deploy.expression import Formula
from sstorch.deploy.script import JAVASCRIPT, PYTHON
from sstorch.exceptions import ConfigError, DataError
from sstorch.files import write_whole
from sstorch.metrics import KaplanMeier, aalen_johansen

Language = Literal["python", "javascript"]
_SCRIPTS = {"python": PYTHON, "javascript": JAVASCRIPT}


@dataclass(frozen=True)
class Counts:
    """Counts of a tree or a group."""

    rows: int
    events: Mapping[str, int]  # by cause; an empty name for a single event
    # Predicted median of the event-free time, not finite if not reached; None if not reported.
    median: float | None = None

    def text(self, texts: Mapping[str, str], unit: str | None = None) -> str:
        """Format the counts by texts of the page, such as ``"92 rows, 56 events, median 2 years"``."""
        if not self.rows:
            return texts["no_rows"]
        facts = [counted_text(texts, "rows", self.rows)]
        for name, n in self.events.items():
            facts.append(f"{n} {name}" if name else counted_text(texts, "events", n))
        if self.median is not None:
            key = "median" if "" in self.events else "free_median"
            reached = math.isfinite(self.median)
            time = duration_text(texts, self.median, unit) if reached else ""
            facts.append(say(texts, key if reached else f"{key}_unreached", time=time))
        return ", ".join(facts)


@dataclass(frozen=True)
class Deployed:
    """Reported facts about a tree, apart from its formula."""

    kind: str  # such as "Soft survival tree of depth 2"
    counts: Counts  # of the rows that it was trained, or recalibrated, on
    fields: Sequence[Field]  # with ranges and typical values as far as the tree knows them
    nodes: Sequence[PageNode]  # the tree as one reads it, the root first
    groups: Mapping[int, Counts]  # by number
    time_unit: str | None = None  # None if unknown
    recalibrated: bool = False  # whether the rows are those of a recalibration
    beyond: str = ""  # how curves go on after the last event
    missing: str = ""  # how missing values are read

    def subtitle(self, texts: Mapping[str, str]) -> str:
        """The kind of tree and its rows."""
        rows = self.counts.text(texts)
        rows = say(texts, "of_recalibration", counts=rows) if self.recalibrated else rows
        return f"{self.kind}, {rows}"


class Deployable(Protocol):
    """A fitted survival tree, soft or exact, that can be exported."""

    event_times_: FloatArray

    def apply(self, X: object) -> IntArray:
        """Group of each row, shape (n,)."""

    def _formula(self) -> Formula: ...

    # Facts for the page and the head of the code, with or without medians of the groups.
    def _deployed(self, medians: bool) -> Deployed: ...

    def _cleaned(self, X: object) -> pd.DataFrame: ...  # the training columns of rows, read

    def _refuse_unknown_future(self, after: object) -> None: ...  # without it, of time-varying covariates


def conditional_formula(tree: Deployable, after: float | None) -> Formula:
    """The formula of S(t), or of S(after + t) / S(after); ConfigError: see :func:`export_code`."""
    check_tree(tree, "_deployed")
    formula = tree._formula()
    tree._refuse_unknown_future(after)
    return formula.conditional(after)


def _supposed(formula: Formula, texts: Mapping[str, str]) -> str:
    """What is supposed of a patient, as a sentence; empty if nothing is."""
    if formula.after is None:
        return ""
    time = f"{formula.after:g}".replace(".", texts["decimal"])
    return say(texts, "from_time" if formula.after else "from_zero", time=time)


def export_code(
    tree: Deployable,
    language: Language,
    path: str | Path | None = None,
    *,
    after: float | None = None,
) -> str:
    """Export the tree as source code with imputation and scaling, independent of this package and torch.

    ``"python"`` (standard library only) and ``"javascript"`` define functions of a patient, a dictionary or
    object of columns in original units (missing: None, null or NaN, imputed as in training):
    ``group(patient)``, the number of the group; ``survival(patient, time)``, (event-free) survival S(t); with
    competing causes ``incidence(patient, time)``, F(t) by cause. Predictions equal
    ``predict_survival_function`` and ``predict_cumulative_incidence`` up to rounding. The functions raise an
    error for an absent column and an unknown (for example misspelt) category.

    Args:
        tree: fitted, soft or exact.
        language: ``"python"`` or ``"javascript"``.
        path: output file; None for no file.
        after: time at which the patients are at risk. The code computes S(after + t) / S(after) and (F(after
            + t) - F(after)) / S(after) for constant covariates, with times counted from ``after``; nan if
            S(after) is 0. Required for models with time-varying covariates; 0 is time zero.

    Returns:
        the code.

    Raises:
        ConfigError: the language is unknown; the file cannot be written; the leaf family has no formula
            (``generalized_gamma``); the model has time-varying covariates and ``after`` is None.
    """
    check_choice(language, "language", get_args(Language))
    formula, facts = conditional_formula(tree, after), tree._deployed(medians=False)
    unit = f" Time is in {facts.time_unit}." if facts.time_unit else ""
    title = f"{facts.subtitle(PAGE_TEXTS)}.{unit} {_supposed(formula, PAGE_TEXTS)}".rstrip()
    code = _SCRIPTS[language].source(formula, title)
    if path is not None:
        _write(path, code)
    return code


def export_program(tree: Deployable, path: str | Path, *, after: float | None = None) -> None:
    """Write a soft tree as one file for torch alone: ``torch.export.load(path).module()(x, times)``.

    Imputation, scaling and tree are in it; it gives S(t | x), shape (N, T), with N and T free, and of
    competing causes a pair, F(t | x), shape (N, K, T), and S(t | x), free of any event. ``x`` are the encoded
    features in original units, shape (N, p), float64: numbers as they are, 1 where a category applies
    and 0 elsewhere, NaN where missing; ``times`` (T,) float64, >= 0. The names of the features are in the
    extra file ``sstorch.json``. Columns are not checked there. The program runs on the CPU, whatever
    the device of the tree; ``torch.export.passes.move_to_device_pass`` moves it.

    Args:
        tree: fitted, soft.
        path: file, by convention ``*.pt2``.
        after: time at which the rows are at risk. The program then returns S(after + t | x) / S(after | x)
            for constant covariates, nan if S(after | x) is 0; ``sstorch.json`` stores ``after``. Required for
            models with time-varying covariates; 0 is time zero.

    Raises:
        ConfigError: the tree is exact, the file cannot be written, torch cannot trace a custom family, or the
            model has time-varying covariates and ``after`` is None.
        DataError: ``after`` is not a time >= 0.
    """
    check_tree(tree, "_deployed")
    tree._refuse_unknown_future(after)
    if not hasattr(tree, "_write_program"):
        raise ConfigError(
            f"export_program is for soft trees, which torch computes, got {type(tree).__name__}; export_code "
            "writes every tree"
        )
    tree._write_program(Path(path), None if after is None else float(check_after(after, 1)[0]))


def export_calculator(
    tree: Deployable,
    path: str | Path,
    X: object = None,
    y: object = None,
    *,
    title: str | None = None,
    horizons: npt.ArrayLike | None = None,
    labels: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    outcome: str | None = None,
    after: float | None = None,
    texts: Mapping[str, str] | None = None,
) -> None:
    """Write a calculator for one patient: one HTML file that needs no network and sends no data.

    It shows the path through the tree, the group, and the gates between this group and the next by prognosis;
    the survival curve, with the Kaplan-Meier estimate of the group and its 95 % confidence band; the median;
    survival at some horizons, and the effect of each value compared with the typical value. With competing
    causes it shows the cumulative incidence of each cause. Values outside the training range are marked.

    Args:
        tree: fitted, soft or exact.
        path: file, by convention ``*.html``.
        X: rows for ranges and typical values (medians, most frequent categories) of the fields, usually the
            training rows. Without them a soft tree uses its stored ranges and means.
        y: outcome of the rows, as in ``fit``, with its weights, for the Kaplan-Meier or Aalen-Johansen curve
            of the group behind the prediction.
        title: title of the page; None for the name of the outcome.
        horizons: times of the shown probabilities; None for round times near quantiles of the event times.
        labels: labels of columns.
        units: of numeric columns.
        outcome: name of S(t), such as ``"recurrence-free survival"``; None for ``"survival"``, with competing
            causes ``"event-free survival"``.
        after: as in :func:`export_code`; curves of groups then use the rows at risk at this time, and
            horizons count from it.
        texts: texts of the page in place of the default texts ``PAGE_TEXTS``, by key, such as a translation.
            Rules and the kind of the model stay English.

    Raises:
        ConfigError: the file cannot be written, a name is not a column, a horizon or ``after`` is beyond the
            last training event, the leaf family has no formula (``generalized_gamma``), the model has
            time-varying covariates and ``after`` is None, or ``texts`` has an unknown key.
        DataError: the rows cannot be read, or lack the entry or id of the training outcome.
    """
    formula = conditional_formula(tree, after)
    if y is not None and X is None:
        raise ConfigError("y is of the rows X: give both, or neither")
    words, facts, start = page_texts(texts), tree._deployed(medians=after is None), formula.after or 0.0
    if not (events := tree.event_times_[tree.event_times_ > start] - start).size:
        raise ConfigError(f"after={start:g} is not before the last training event, {tree.event_times_[-1]:g}")
    last, unit = float(events[-1]), facts.time_unit
    times = round_horizons(events, unit) if horizons is None else np.unique(as_numbers(horizons, "horizons"))
    if times.size == 0 or not ((times > 0) & (times <= last)).all():
        raise ConfigError(
            f"horizons must be times above 0 and up to the last event of the training rows, {last:g}; "
            f"got {horizons!r}"
        )
    groups = [
        PageGroup(number, counts.rows, counts.text(words, unit)) for number, counts in facts.groups.items()
    ]
    if y is not None:
        known = outcome_of(tree, y)
        check_same_order(X=X, y=known)
        groups = _group_curves(groups, tree.apply(X), known, last, start)
    outcome = outcome or words["event_free_survival" if formula.causes else "survival"]
    supposed = _supposed(formula, words)
    content = page(
        title or sentence_case(say(words, "title", outcome=outcome)),
        facts.subtitle(words) + (f". {supposed}" if supposed else ""),
        _fields(tree, facts.fields, X, labels, units),
        times.tolist(),
        last,
        unit,
        outcome,
        words,
        formula,
        facts.nodes,
        groups,
    )
    _write(path, content)


def _fields(
    tree: Deployable,
    fields: Sequence[Field],
    X: object,
    labels: Mapping[str, str] | None,
    units: Mapping[str, str] | None,
) -> list[Field]:
    """Fields with labels and units, and with ranges and typical values of the rows X unless it is None."""
    names, labels, units = [field.name for field in fields], dict(labels or {}), dict(units or {})
    for what, given in (("labels", labels), ("units", units)):
        if strange := [name for name in given if name not in names]:
            raise ConfigError(f"{what} names {strange[0]!r}; the columns are {', '.join(names)}")
    found = [
        replace(each, label=labels.get(each.name, each.name), unit=units.get(each.name)) for each in fields
    ]
    if X is None:
        return found
    frame = tree._cleaned(X)
    return [_field_of_rows(each, frame[each.name]) for each in found]


def _field_of_rows(field: Field, column: pd.Series) -> Field:
    """Range and typical value of some rows."""
    known = column.dropna()
    if known.empty:
        return field
    if field.categories is not None:
        return replace(field, typical=str(known.astype(str).mode().iloc[0]))
    values = known.to_numpy(dtype=np.float64)
    low, start, typical, end, high = map(float, np.quantile(values, [0.0, 0.05, 0.5, 0.95, 1.0]))
    if binary := bool(np.isin(values, (0.0, 1.0)).all()):
        typical, start, end = round(typical), low, high
    return replace(field, low=low, high=high, typical=typical, binary=binary, span=(start, end))


def _group_curves(
    groups: Sequence[PageGroup], group: IntArray, y: Surv, last: float, start: float
) -> list[PageGroup]:
    """With Kaplan-Meier or Aalen-Johansen curves of the rows at risk from a time on, as far as they go."""
    if len(y) != len(group):
        raise DataError(f"X has {len(group)} rows but y has {len(y)}; give one outcome for every row")
    time, _, _ = y.right_censored("the curve of a group")
    group, y, time = group[time > start], y[time > start].from_landmark(start), time[time > start] - start
    weight, curves = np.ones(len(y)) if y.weight is None else y.weight, []
    for page_group in groups:
        inside = (group == page_group.number) & (weight > 0)
        if inside.any():
            own = y[inside]
            end = min(float(time[inside].max()), last)
            times = np.unique(time[inside][own.event])
            times = np.append(times[times < end], end)
            found = aalen_johansen(own, times) if y.causes else np.stack(KaplanMeier.fit(own).limits(times))
            steps, values = thinned_steps(times, found)
            n_curves = len(y.causes or ("event",))
            limits = values[n_curves:] if np.isfinite(found).all() else []  # none without an event
            page_group = replace(page_group, times=steps, curves=values[:n_curves], limits=limits)
        curves.append(page_group)
    return curves


def _write(path: str | Path, content: str) -> None:
    try:
        write_whole(Path(path).expanduser(), content.encode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}; choose another file") from error
