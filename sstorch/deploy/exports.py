"""Functions that write a fitted tree as code, graph, program of torch, workbook and page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import IntArray
from sstorch.checks import check_after, check_choice, check_tree
from sstorch.data import Surv, outcome_of
from sstorch.data.time_unit import round_horizons
from sstorch.deploy.calculator import (
    Calculator,
    Field,
    Front,
    PageGroup,
    check_horizons,
    check_names,
    sentence_case,
    thinned_steps,
)
from sstorch.deploy.deployable import Deployable, conditional_formula, headline, no_limits
from sstorch.deploy.dialects import DIALECTS, DialectName
from sstorch.deploy.expression import Formula
from sstorch.deploy.javascript import JavaScript
from sstorch.deploy.onnx import write_graph
from sstorch.deploy.python import Python
from sstorch.deploy.r import R
from sstorch.deploy.script import Missing, Script
from sstorch.deploy.sql import SQL
from sstorch.deploy.workbook import workbook
from sstorch.exceptions import ConfigError, DataError
from sstorch.files import write_whole
from sstorch.language import Language as Texts
from sstorch.metrics import KaplanMeierBand, aalen_johansen

Language = Literal["python", "javascript", "r", "sql"]
_SCRIPTS: Mapping[Language, type[Script]] = {"python": Python, "javascript": JavaScript, "r": R}


def export_code(
    tree: Deployable,
    language: Language,
    path: str | Path | None = None,
    *,
    horizon: float | Sequence[float] | None = None,
    after: float | None = None,
    level: float | None = None,
    missing: Missing = "raise",
    dialect: DialectName | None = None,
    table: str = "patients",
    key: str | Sequence[str] = (),
) -> str:
    """Export the tree as source code with imputation and scaling, independent of this package and torch.

    ``"python"`` (standard library only), ``"javascript"`` and ``"r"`` (base R) define functions of a patient,
    a dictionary, object or list of columns in original units (missing: None, null, NA or NaN):
    ``group(patient)``, the number of the group; ``survival(patient, time)``, (event-free) survival S(t); with
    competing causes ``incidence(patient, time)``, F(t) by cause. In R a patient can be a data frame; the
    functions then return a vector with one entry per row. ``"sql"`` is a query that returns one row per row
    of a table of these columns (missing: NULL): ``predicted_group``, ``predicted_survival``, and with
    competing causes ``predicted_incidence_CAUSE``. Predictions equal ``predict_survival_function`` and
    ``predict_cumulative_incidence`` up to rounding. A query does not check columns.

    Args:
        tree: fitted, soft or exact.
        language: ``"python"``, ``"javascript"``, ``"r"`` or ``"sql"``.
        path: output file; None for no file.
        horizon: time of the query (required), or default time of the functions. A query also accepts several
            times; the names of its columns then end with ``_TIME``.
        after: time at which the patients are at risk. The code computes S(after + t) / S(after) and (F(after
            + t) - F(after)) / S(after) for constant covariates, with times counted from ``after``; nan (NULL)
            if S(after) is 0. Required for models with time-varying covariates; 0 is time zero.
        level: level of confidence limits, in (0, 1), or None. Adds functions ``survival_limits(patient,
            time)`` and, with competing causes, ``incidence_limits(patient, time)``, which return ``lower``
            and ``upper`` as :func:`sstorch.inference.predict`.
        missing: ``"raise"``: functions raise an error for a missing column of the model or an unknown (for
            example misspelt) category; ``"typical"``: the column is imputed as in training, and all
            indicators of the category are 0.
        dialect: database system of the query: ``"postgresql"`` (12 or later), ``"sqlite"`` (3.35),
            ``"duckdb"``, ``"tsql"`` (SQL Server), ``"mysql"`` (8.0.17), ``"oracle"``, ``"bigquery"``.
        table: name of the table as stored in the database, with the schema before a point.
        key: columns that identify a row of the table; the query returns them instead of the columns of the
            model, for a join. In ``tsql``, ``mysql``, ``oracle`` and ``bigquery`` the incidences of competing
            causes of soft trees need a key, and are NULL if several rows have the same key.

    Returns:
        the code.

    Raises:
        ConfigError: the language or dialect is unknown; a query has no horizon; the file cannot be written;
            the leaf family has no formula (``generalized_gamma``); the model has time-varying covariates and
            ``after`` is None; ``level`` is given for a query, with ``after`` above 0, or for a model without
            a covariance; ``dialect``, ``table`` or ``key`` is given for another language.
    """
    check_choice(language, "language", get_args(Language))
    if language == "sql":
        if level is not None:
            raise ConfigError("level is for functions: queries have no confidence limits")
        code = _query(conditional_formula(tree, after), headline(tree), dialect, horizon, table, key)
    else:
        if dialect is not None or table != "patients" or [*key]:
            raise ConfigError(f"dialect, table and key are of language='sql', got language={language!r}")
        code = _functions(conditional_formula(tree, after, level), language, headline(tree), horizon, missing)
    if path is not None:
        _write(path, code)
    return code


def export_onnx(tree: Deployable, path: str | Path, *, after: float | None = None) -> None:
    """Write the tree as an ONNX graph, with imputation and scaling; needs the extra ``deploy``.

    Inputs are the columns by name, (N, 1): float64 (missing: NaN) or strings (missing: ""), and ``time`` (1,
    T) float64. Outputs are ``survival`` (N, T), ``group`` (N, 1) and, with competing causes, ``incidence``
    (N, K, T).

    Args:
        tree: fitted, soft or exact.
        path: file, by convention ``*.onnx``.
        after: as in :func:`export_code`.

    Raises:
        ConfigError: the file cannot be written, the leaves are of a family without a formula
            (``generalized_gamma``), or the model has time-varying covariates and ``after`` is None.
        ImportError: onnx is not installed.
    """
    write_graph(conditional_formula(tree, after), path, headline(tree))


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
        ConfigError: the tree is exact, the file cannot be written, torch cannot trace the leaf family
            (``generalized_gamma``), or the model has time-varying covariates and ``after`` is None.
        DataError: ``after`` is not a time >= 0.
    """
    check_tree(tree, "_deployed")
    tree._refuse_unknown_future(after)
    tree._write_program(Path(path), None if after is None else float(check_after(after, 1)[0]))


def export_workbook(
    tree: Deployable,
    path: str | Path,
    X: object = None,
    *,
    title: str | None = None,
    horizons: npt.ArrayLike | None = None,
    labels: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    outcome: str | None = None,
    after: float | None = None,
    missing: Missing = "raise",
    language: str | Mapping[str, str] = "en",
) -> None:
    """Write a calculator for one patient as a workbook (.xlsx); needs the extra ``files``.

    Results are cell formulas without macros or links: the group, survival and, with competing causes, the
    cumulative incidence of each cause; they equal ``predict_survival_function`` and
    ``predict_cumulative_incidence``. Empty cells are imputed as in training. Horizons are also cells, except
    for soft trees with integrated competing causes. For a value that is not a number, or an unknown category,
    a note with the remedy replaces the results.

    Args:
        tree: fitted, soft or exact.
        path: file, by convention ``*.xlsx``.
        X: rows for ranges and typical values of the fields, as in :func:`export_calculator`.
        title: title of the first sheet; None for the name of the outcome.
        horizons: times of the results; None for round times.
        labels: labels of columns.
        units: of numeric columns.
        outcome: what S(t) is called.
        after: as in :func:`export_code`.
        missing: ``"raise"``, or ``"typical"``: all indicators of an unknown category are 0.
        language: language of the texts, as in :func:`export_calculator`.

    Raises:
        ConfigError: as in :func:`export_calculator`, or a formula exceeds the limit of Excel.
        DataError: the rows cannot be read.
        ImportError: openpyxl is not installed.
    """
    check_choice(missing, "missing", get_args(Missing))
    formula = conditional_formula(tree, after)
    front = _front(tree, formula, X, title, horizons, labels, units, outcome, language)
    _write(path, workbook(formula, front, checked=missing == "raise"))


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
    level: float | None = 0.95,
    language: str | Mapping[str, str] = "en",
) -> None:
    """Write a calculator for one patient: one HTML file that needs no network and sends no data.

    It shows the path through the tree, the group, and the gates between this group and the next by prognosis;
    the survival curve, with the Kaplan-Meier estimate of the group and its 95 % confidence band; the median;
    survival at some horizons, and the effect of each value compared with the typical value. With competing
    causes it shows the cumulative incidence of each cause. Values outside the training range are marked.
    Probabilities at the horizons have confidence limits if the model has a covariance
    (:mod:`sstorch.inference`).

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
            horizons count from it. Such probabilities have no confidence limits.
        level: level of the confidence limits, in (0, 1); None for a page without them.
        language: language of the page: ``"en"``, ``"de"``, ``"fr"``, ``"es"``, or a translation of the
            dictionary :func:`language_texts`. Names of columns, categories, causes, `title` and `outcome` are
            not translated.

    Raises:
        ConfigError: the file cannot be written, a name is not a column, a horizon or ``after`` is beyond the
            last training event, the leaf family has no formula (``generalized_gamma``), the model has
            time-varying covariates and ``after`` is None, or the language is unknown.
        DataError: the rows cannot be read, or lack the entry or id of the training outcome.
    """
    check_tree(tree, "_deployed")
    formula = conditional_formula(tree, after, None if no_limits(tree, after) else level)
    if y is not None and X is None:
        raise ConfigError("y is of the rows X: give both, or neither")
    front = _front(tree, formula, X, title, horizons, labels, units, outcome, language)
    facts = tree._deployed(medians=after is None)
    groups = [
        PageGroup(number, counts.rows, counts.text(front.language, facts.time_unit))
        for number, counts in facts.groups.items()
    ]
    if y is not None:
        start = formula.after or 0.0
        groups = _group_curves(groups, tree.apply(X), outcome_of(tree, y), front.last_time, start)
    _write(path, Calculator(front, formula, facts.nodes, groups).html())


def _functions(
    formula: Formula,
    language: Language,
    title: str,
    horizon: float | Sequence[float] | None = None,
    missing: Missing = "raise",
) -> str:
    """Functions of a patient, which need nothing but the language, any but ``"sql"``.

    Arguments are as in :func:`export_code`.
    """
    check_choice(missing, "missing", get_args(Missing))
    if horizon is not None:
        if not isinstance(horizon, int | float):
            raise ConfigError(f"horizon must be one time for language={language!r}, got {horizon!r}")
        formula.at(horizon)  # checks it
    return _SCRIPTS[language]().source(formula, title, horizon, missing)


def _query(
    formula: Formula,
    title: str,
    dialect: DialectName | None,
    horizon: float | Sequence[float] | None,
    table: str = "patients",
    key: str | Sequence[str] = (),
) -> str:
    """A query with the predictions for each row of a table.

    Arguments are as in :func:`export_code`.
    """
    check_choice(dialect, "dialect", get_args(DialectName))
    assert dialect is not None
    if horizon is None:
        raise ConfigError("a query needs times: give horizon, in the time unit of the training rows")
    key = [key] if isinstance(key, str) else [*key]
    if not table.strip(" .") or not all(isinstance(name, str) and name for name in key):
        raise ConfigError(f"table and key must be names, got table={table!r} and key={key!r}")
    if isinstance(horizon, int | float):
        times = {"": float(horizon)}
    else:
        times = {f"_{time:g}": float(time) for time in horizon}
        if not times or len(times) < len(horizon):
            raise ConfigError(f"horizon must be one time or several distinct times, got {horizon!r}")
    return SQL(DIALECTS[dialect]).source(formula, f"{title} Query for {dialect}.", times, table, key)


def _front(
    tree: Deployable,
    formula: Formula,
    X: object,
    title: str | None,
    horizons: npt.ArrayLike | None,
    labels: Mapping[str, str] | None,
    units: Mapping[str, str] | None,
    outcome: str | None,
    language: str | Mapping[str, str],
) -> Front:
    """Texts, fields and horizons; the arguments are those of :func:`export_calculator`."""
    say, facts, start = Texts.of(language), tree._deployed(medians=False), formula.after or 0.0
    if not (events := tree.event_times_[tree.event_times_ > start] - start).size:
        raise ConfigError(f"after={start:g} is not before the last training event, {tree.event_times_[-1]:g}")
    names = [field.name for field in facts.fields]
    labels, units = check_names(labels, names, "labels"), check_names(units, names, "units")
    fields = [
        replace(field, label=labels.get(field.name, field.name), unit=units.get(field.name))
        for field in facts.fields
    ]
    if X is not None:
        frame = tree._cleaned(X)
        fields = [_field_of_rows(field, frame[field.name]) for field in fields]
    subtitle, last = facts.subtitle(say), float(events[-1])
    if formula.after is not None:
        supposed = say("from_time" if start else "from_zero", time=say.number(f"{start:g}"))
        subtitle = f"{subtitle}. {supposed}"
    outcome = outcome or say("event_free_survival" if formula.causes else "survival")
    return Front(
        title or sentence_case(say("title", outcome=outcome)),
        subtitle,
        fields,
        check_horizons(horizons, round_horizons(events, facts.time_unit), last),
        last,
        facts.time_unit,
        outcome,
        say,
    )


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
    groups: Sequence[PageGroup],
    group: IntArray,
    y: Surv,
    last: float,
    start: float = 0.0,
) -> list[PageGroup]:
    """With Kaplan-Meier or Aalen-Johansen curves of the rows at risk from a time on, as far as they go."""
    if len(y) != len(group):
        raise DataError(f"X has {len(group)} rows but y has {len(y)}; give one outcome for every row")
    time, _, _ = y.right_censored("the curve of a group")
    group, y = group[time > start], y[time > start].from_landmark(start)
    time = time[time > start] - start
    weight = np.ones(len(time)) if y.weight is None else y.weight
    curves = []
    for page_group in groups:
        inside = (group == page_group.number) & (weight > 0)
        if inside.any():
            own, end = y[inside], min(float(time[inside].max()), last)
            times = np.unique(time[inside & y.any_cause().event])
            times = np.append(times[times < end], end)
            found = aalen_johansen(own, times) if y.causes else np.stack(KaplanMeierBand.fit(own).at(times))
            steps, values = thinned_steps(times, found)
            n_curves = len(y.causes or ("event",))
            page_group = replace(page_group, times=steps, curves=values[:n_curves], limits=values[n_curves:])
        curves.append(page_group)
    return curves


def _write(path: str | Path, content: str | bytes) -> None:
    try:
        write_whole(Path(path).expanduser(), content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}; choose another file") from error
