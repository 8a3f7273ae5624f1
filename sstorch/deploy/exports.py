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
from sstorch.deploy.deployable import (
    Deployable,
    conditional_formula,
    headline,
    no_limits,
)
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
    """The tree as source code that needs neither this package nor torch, with imputation and scaling.

    ``"python"`` (standard library alone), ``"javascript"`` and ``"r"`` (base R) give functions of a patient,
    a dictionary, object or list of the columns in original units (missing where None, null, NA or NaN):
    ``group(patient)``, the number of the group, ``survival(patient, time)``, S(t), free of any event, and of
    competing causes ``incidence(patient, time)``, F(t) by cause. In R a patient may be a data frame: the
    functions then give a vector with an entry for each row. ``"sql"`` gives a query with a row for each row
    of a table of these columns, NULL where missing: ``predicted_group``, ``predicted_survival``, and of
    competing causes ``predicted_incidence_CAUSE`` for each. Predictions are those of
    ``predict_survival_function`` and ``predict_cumulative_incidence`` to rounding. A query checks no columns.

    Args:
        tree: fitted, soft or exact.
        language: ``"python"``, ``"javascript"``, ``"r"`` or ``"sql"``.
        path: file to write; None writes none.
        horizon: time of the query, which needs one, or of functions that are called without a time. A query
            takes several as well: the names of its columns then end with ``_TIME``.
        after: time at which the patients are at risk: the code then computes S(after + t) / S(after) and
            (F(after + t) - F(after)) / S(after) of a patient whose covariates stay as given, times count from
            there, as its head notes. nan (NULL) where S(after) is 0. A model with time-varying covariates
            needs it; 0 is time zero.
        level: of confidence limits, in (0, 1): functions then include ``survival_limits(patient, time)``, of
            competing causes ``incidence_limits(patient, time)`` as well, with ``lower`` and ``upper``, those
            of :func:`sstorch.inference.predict`. None exports none.
        missing: ``"raise"``: functions raise an error where a patient lacks a column that the model uses, or
            has an unknown category there, as where one is misspelt; ``"typical"``: the column is then filled
            as in the training rows, and the category counts as none.
        dialect: database of the query: ``"postgresql"`` (12 or later), ``"sqlite"`` (3.35), ``"duckdb"``,
            ``"tsql"`` (SQL Server), ``"mysql"`` (8.0.17), ``"oracle"``, ``"bigquery"``.
        table: of the query, as the database stores its name, with a schema before a point.
        key: columns that identify a row of the table: the query returns them in place of the columns of the
            model, for a join. In ``tsql``, ``mysql``, ``oracle`` and ``bigquery`` the incidences of competing
            causes of soft trees need it, and are NULL where several rows have one key.

    Returns:
        the code.

    Raises:
        ConfigError: the language or dialect does not exist, a query has no horizon, the file cannot be
            written, the leaves are of a family without a formula (``generalized_gamma``), or the model has
            time-varying covariates and ``after`` is None; ``level`` is given for a query, with ``after``
            above 0, or for a model without a covariance; ``dialect``, ``table`` or ``key`` is given for
            another language.
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

    Inputs are the columns by name, (N, 1): float64 with NaN where missing, or strings, "" where missing;
    and ``time`` (1, T) float64. Outputs are ``survival`` (N, T), ``group`` (N, 1), and of competing causes
    ``incidence`` (N, K, T).

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
    extra file ``sstorch.json``. Columns are not checked there. The program runs on the device of the tree.

    Args:
        tree: fitted, soft.
        path: file, by convention ``*.pt2``.
        after: time at which the rows are at risk: the program then gives S(after + t | x) / S(after | x) of
            rows that stay as they are, nan where S(after | x) is 0; ``sstorch.json`` holds it as ``after``. A
            model with time-varying covariates needs it; 0 is time zero.

    Raises:
        ConfigError: the tree is exact, the file cannot be written, the leaves are of a family that torch
            cannot trace (``generalized_gamma``), or the model has time-varying covariates and ``after`` is
            None.
        DataError: ``after`` is no time.
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
    """Write a workbook (.xlsx) in which one enters a patient; needs the extra ``files``.

    Results are formulas of cells, without macros or links: the group, survival and of competing causes the
    cumulative incidence of each, those of ``predict_survival_function`` and ``predict_cumulative_incidence``.
    Empty cells are filled as in the training rows. Horizons are cells, too, except where competing causes of
    a soft tree are integrated. A value that is no number, or an unknown category, has a note with the remedy,
    and the results are that text.

    Args:
        tree: fitted, soft or exact.
        path: file, by convention ``*.xlsx``.
        X: rows whose ranges and typical values the fields have, as in :func:`export_calculator`.
        title: of the first sheet; None names the outcome.
        horizons: times of the results; None takes round ones.
        labels: names of columns as the workbook calls them.
        units: of numeric columns.
        outcome: what S(t) is called.
        after: as in :func:`export_code`.
        missing: ``"raise"``, or ``"typical"``: an unknown category counts as none.
        language: of the texts, as in :func:`export_calculator`.

    Raises:
        ConfigError: as in :func:`export_calculator`, or a formula is longer than Excel takes.
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
    """Write a page in which one enters a patient: one HTML file that needs no network and sends nothing.

    It shows the patient's way through the tree, the group, and the gates between it and the next group by
    prognosis; the curve, with Kaplan-Meier of the group and its 95 % confidence band; the median, survival at
    some horizons, and how much each value raises and lowers it against the typical one. Of competing causes
    it shows the cumulative incidence of each. Values outside the training range are marked. Probabilities
    at the horizons have confidence limits where the model has a covariance (:mod:`sstorch.inference`).

    Args:
        tree: fitted, soft or exact.
        path: file, by convention ``*.html``.
        X: rows whose ranges and typical values (medians, most frequent categories) the fields have, the
            training rows as a rule. A soft tree has ranges and means of its own without them.
        y: their outcome, as in ``fit``, with its weights: Kaplan-Meier of the patient's group, of competing
            causes Aalen-Johansen, is drawn behind the curve.
        title: of the page; None names the outcome.
        horizons: times at which probabilities are shown; None takes round ones near quantiles of the
            event times.
        labels: names of columns as the page calls them.
        units: of numeric columns.
        outcome: what S(t) is called, such as ``"recurrence-free survival"``; None for ``"survival"``, of
            competing causes ``"event-free survival"``.
        after: as in :func:`export_code`; curves of groups are then of the rows at risk at that time,
            from there, and horizons count from there. Such probabilities have no confidence limits.
        level: of the confidence limits, in (0, 1); None for a page without them.
        language: of the page: ``"en"``, ``"de"``, ``"fr"``, ``"es"``, or its texts by key, those of
            :func:`language_texts` translated. Names of columns, categories, causes, `title` and `outcome`
            stay as given.

    Raises:
        ConfigError: the file cannot be written, a name is no column, a horizon or ``after`` is beyond the
            last training event, the leaves are of a family without a formula (``generalized_gamma``), the
            model has time-varying covariates and ``after`` is None, or the language is not known.
        DataError: the rows cannot be read, or lack the entry or id that the training rows had.
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

    Arguments are those of :func:`export_code`.
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

    Arguments are those of :func:`export_code`.
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
