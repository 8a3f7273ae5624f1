"""Columns of a regression that are no covariates: an offset, and strata with baselines of their own."""

from __future__ import annotations

import copy

import pandas as pd

from sstorch.data import Schema, SurvivalData
from sstorch.data.design_matrix import CODED_LEVELS
from sstorch.exceptions import ConfigError, DataError
from sstorch.nn import HazardFamily

# Kinds of the features of these columns, whose coefficients are no part of the problem.
OFFSET, STRATUM = "offset", "stratum"
FIXED = (OFFSET, STRATUM)


def with_strata(family: HazardFamily) -> HazardFamily:
    """A family whose shape parameters differ between strata."""
    own = copy.deepcopy(family)
    own.ancillary = "strata"
    return own


def check_fixed_columns(schema: Schema, offset: str | None, strata: str | None) -> None:
    """Raise ConfigError if a column is missing, the offset categorical, or strata numeric or too many."""
    for what, name in (("offset", offset), ("strata", strata)):
        if name is not None and name not in schema.columns:
            raise ConfigError(f"{what} names {name!r}; the columns are {', '.join(schema.columns)}")
    if offset in schema.categories:
        raise ConfigError(f"offset: column {offset!r} is categorical; its values must be numbers")
    if strata is None:
        return
    if strata not in schema.categories:
        raise ConfigError(f"strata: column {strata!r} is numeric; make it categorical, as by astype(str)")
    if (count := len(schema.categories[strata])) > CODED_LEVELS:
        raise ConfigError(
            f"strata: column {strata!r} has {count} categories, at most {CODED_LEVELS} can be strata; "
            "join some of them"
        )


def check_strata(data: SurvivalData, strata: str, cause: str | None) -> None:
    """Raise DataError if a stratum has no event, of a cause where they compete, and so no baseline."""
    known = data.frame[strata].dropna().astype(str)
    events = pd.Series(data.event * data.sample_weight > 0, index=data.frame.index)[known.index]
    rows, had = known.value_counts(), events.groupby(known).any()
    if empty := [f"{name!r} ({rows[name]} rows)" for name in had.index if not had[name]]:
        what = f"no event of cause {cause}" if cause else "no event"
        raise DataError(
            f"strata: {what} in {', '.join(empty)} of column {strata!r}: such a stratum has no baseline; "
            "join it with another, or leave its rows out"
        )
