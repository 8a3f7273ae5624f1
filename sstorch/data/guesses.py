"""Guesses of what the columns of a file are: outcome, identifiers, dates, codes for missing values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from pandas.api import types as pdt

from sstorch.checks import option_text
from sstorch.data.column_rules import dates_of, is_dates, limits_of
from sstorch.data.columns import label
from sstorch.data.file_options import FileOptions
from sstorch.data.oddities import several_rows
from sstorch.exceptions import DataError

_TIME = re.compile(
    r"time|days|weeks|months|years|(?<![^\W_])tage|lebenstage|wochen|monate|jahre|dauer|duration|follow|survival|überleben"
    r"|zeit|stop|^(os|pfs|dfs|fu)([ _.]|$)",
    re.IGNORECASE,
)
# Ages, stages and percentages, but not the German days, "Tage".
_NO_TIME = re.compile(r"(?<!(?<![^\W_])t)(?<!lebenst)age|alter|start|begin|entry|time1$", re.IGNORECASE)
_EVENT = re.compile(
    r"event|status|death|dead|died|tot|tod|verstorben|gestorben|ereignis|cens|zens|relapse|rezidiv|outcome"
    r"|d[ée]c[èeé]s|d[ée]c[ée]d|év[ée]nement|muert",
    re.IGNORECASE,
)
_ENTRY = re.compile(r"^(t?start|entry|begin|eintritt|time1)", re.IGNORECASE)
_END = re.compile(r"end|last|letzt|death|tod|exit|follow|fu|cens|kontroll", re.IGNORECASE)
_UNITS = {
    "days": re.compile(r"day|tag", re.IGNORECASE),
    "weeks": re.compile(r"week|woche", re.IGNORECASE),
    "months": re.compile(r"month|monat", re.IGNORECASE),
    "years": re.compile(r"year|jahr", re.IGNORECASE),
}
_YES = re.compile(
    r"1|true|wahr|vrai|yes|ja|oui|s[íi]|y|j|dead|deceased|died|death|tot|verstorben|gestorben|d[ée]c[ée]d[ée]e?"
    r"|event",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(r"unbekannt|unknown|k\. ?a\.|keine angabe|fehlend|missing|n\. ?b\.|\?", re.IGNORECASE)
_MAX_CODES = 10
# Share of the rows above which a guess holds: the run reports the other rows as errors, with their lines.
_MOST = 0.9


@dataclass(frozen=True)
class Guess:
    """Guessed role of a column, with the reason."""

    option: str  # option of a file, such as ``"time"``
    value: Any  # its value
    reason: str  # why


def guesses(frame: pd.DataFrame, given: FileOptions, decimal: str) -> Iterator[Guess]:
    """Options that are not given, with the reason for each guess, from rows as read (n, p)."""
    usual, names = FileOptions(), [str(name) for name in frame.columns]
    unknown = sorted({word for name in names for word in _unknown_words(frame[name])})
    if unknown and not given.missing:
        yield Guess("missing", unknown, "words for what is not known")
    event = given.event
    if given.cause is None and (given.event == usual.event or event not in names):
        found = next(_events(frame, unknown), None)
        if found is not None:
            yield from found
            event = str(found[0].value)
    elif given.event_value is None and event in names:
        yield from _event_value(frame[event], unknown)
    dates = [name for name in names if is_dates(frame[name])]
    if not given.date and given.time not in names:
        time = next((name for name in names if name != event and _is_time(frame[name], decimal)), None)
        if time is not None:
            yield Guess("time", time, "its name, and numbers >= 0")
            unit = next((unit for unit, word in _UNITS.items() if word.search(time)), None)
            if unit is not None and given.time_unit is None:
                yield Guess("time_unit", unit, f"the name {time!r}")
            entry = next((n for n in names if n != time and _is_entry(frame[n], frame[time])), None)
            if entry is not None and given.entry is None:
                yield Guess("entry", entry, f"its name, and values below those of {time!r}")
                subject = next((n for n in names if several_rows(frame[n])), None)
                if subject is not None and given.id is None:
                    yield Guess("id", subject, "its name, and values that stand in several rows")
        elif (pair := _follow_up(frame, dates)) is not None:
            yield Guess("date", pair, "two dates, of which the second is never before the first")
            dates = [name for name in dates if name not in pair]
    if dates := [name for name in dates if name not in (*given.drop, *given.date)]:
        yield Guess("drop", dates, "dates are no features")
    if given.limits is None and (
        limited := [name for name in names if _limited(frame[name], decimal, unknown)]
    ):
        yield Guess("limits", "indicator", f"detection limits such as '>300' in {', '.join(limited)}")


def other_outcomes(frame: pd.DataFrame, options: FileOptions, decimal: str) -> str:
    """Columns that could be times or events of another outcome, and are covariates; "" without any."""
    names = [name for name in map(str, frame.columns) if name not in options.taken]
    times = [name for name in names if _is_time(frame[name], decimal)]
    unknown = [word for name in names for word in _unknown_words(frame[name])]
    events = [found[0].value for found in _events(frame[names], unknown)]
    codes = [name for name in names if _EVENT.search(name) and 2 <= frame[name].nunique() <= _MAX_CODES]
    if codes and not events and options.cause is None and options.event not in frame:
        values = ", ".join(sorted({label(value) for value in frame[codes[0]].dropna()}))
        return (
            f"column {codes[0]!r} has the values {values}: name the one of the event (event={codes[0]} "
            f"event_value=...), or those of causes (cause={codes[0]} causes=...); others are censored"
        )
    dates = [name for name in map(str, frame.columns) if _EVENT.search(name) and is_dates(frame[name])]
    if dates and not events and options.cause is None and options.event not in frame:
        return (
            f"no column of events was found: if {dates[0]!r} is the date of the event, add a column of 1 "
            "where it is present and 0 elsewhere; follow-up of rows without it ends with the last contact"
        )
    if not times and not events:
        return ""
    kinds = [(times, "times"), (events, "events")]
    text = " and ".join(f"{what} ({', '.join(map(repr, own))})" for own, what in kinds if own)
    return (
        f"columns look like {text} of another outcome, and are covariates as it stands: if they are one, use "
        f"them as time and event, or leave them out with {option_text('drop', [*times, *events], '')}"
    )


def _unknown_words(column: pd.Series) -> Iterator[str]:
    if pdt.is_numeric_dtype(column.dtype) or pdt.is_datetime64_any_dtype(column.dtype):
        return
    words = column.dropna().unique()
    if len(words) > 1:
        yield from (str(word) for word in words if _UNKNOWN.fullmatch(str(word)))


def _limited(column: pd.Series, decimal: str, unknown: list[str]) -> bool:
    return bool(limits_of(column.mask(column.isin(unknown)), decimal)) if column.dtype == object else False


def _is_time(column: pd.Series, decimal: str) -> bool:
    name = str(column.name)
    if not _TIME.search(name) or _NO_TIME.search(name):
        return False
    if pdt.is_bool_dtype(column.dtype) or not pdt.is_numeric_dtype(column.dtype):
        return False
    return bool(column.nunique() > 2 and (column.dropna() >= 0).mean() > _MOST)


def _is_entry(column: pd.Series, time: pd.Series) -> bool:
    if not _ENTRY.search(str(column.name)) or not pdt.is_numeric_dtype(column.dtype):
        return False
    return bool(((column >= 0) & (column < time)).all())


def _events(frame: pd.DataFrame, unknown: list[str]) -> Iterator[list[Guess]]:
    """Columns that are called as events are, and have few values, the best first."""
    for name in sorted(map(str, frame.columns), key=lambda name: name != "event"):
        if not _EVENT.search(name) or is_dates(frame[name]):
            continue
        values = {label(value) for value in frame[name].dropna().unique()} - set(unknown)
        if not 2 <= len(values) <= _MAX_CODES:
            continue
        codes = {str(k) for k in range(len(values))}
        if len(values) > 2 and values == codes:
            yield [
                Guess("cause", name, f"its name, and the codes 0 to {len(values) - 1} of competing causes")
            ]
        elif len(values) == 2:
            found = list(_event_value(frame[name], unknown))
            if found or values <= {"0", "1", "True", "False"}:
                yield [Guess("event", name, f"its name, and the values {', '.join(sorted(values))}"), *found]


def _event_value(column: pd.Series, unknown: list[str]) -> Iterator[Guess]:
    values = {label(value) for value in column.dropna().unique()} - set(unknown)
    if values <= {"0", "1", "True", "False"}:
        return
    if values == {"1", "2"}:
        yield Guess("event_coding", "1/2", "the values 1 (censored) and 2 (event), as in R")
        return
    for value in sorted(values):
        if _YES.fullmatch(value):
            yield Guess("event_value", value, f"of the values {', '.join(sorted(values))}")
            return


def _follow_up(frame: pd.DataFrame, dates: list[str]) -> list[str] | None:
    """Start and end of follow-up: two dates, the second called as an end is, or rarely before the first."""
    found = []
    for end in dates:
        for start in dates:
            if start == end:
                continue
            named, ordered, complete, days = bool(_END.search(end)), True, False, 0.0
            try:
                first, last = dates_of([frame[start], frame[end]], None)
            except DataError:  # reported by the check of the run
                named = named and not _END.search(start)
            else:
                known = first.notna() & last.notna()
                ordered, complete = bool((last >= first)[known].mean() > _MOST), bool(known.mean() > _MOST)
                days = float((last - first)[known].dt.days.mean())
            if ordered and (complete or named):
                found.append((complete, named, days, start, end))
    return None if not found else list(max(found)[3:])


def with_guess(options: FileOptions, guess: Guess) -> FileOptions:
    """Options with a guess among them; lists are joined."""
    value = guess.value
    if isinstance(value, list):
        value = list(dict.fromkeys([*getattr(options, guess.option), *value]))
    return replace(options, **{guess.option: value})
