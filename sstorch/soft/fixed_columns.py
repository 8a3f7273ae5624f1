"""Columns of a regression that are no covariates: an offset, and strata with baselines of their own."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Self

import pandas as pd
from torch import Tensor

from sstorch.data import Preprocessor, Schema, SurvivalData
from sstorch.data.design_matrix import CODED_LEVELS, DesignMatrix
from sstorch.exceptions import ConfigError, DataError
from sstorch.nn import HazardFamily

# Kinds of the features of these columns, whose coefficients are no part of the problem.
OFFSET, STRATUM = "offset", "stratum"
FIXED = (OFFSET, STRATUM)


@dataclass(frozen=True)
class FixedColumns:
    """What the rows of S splits have in the offset and the strata."""

    offset: int | None  # position of the offset among the features of leaves; None without one
    places: tuple[int, ...]  # positions of the indicators of the strata, (K,)
    values: Tensor | None  # the offset of each row, (S, n); None without one
    stratum: Tensor | None  # number of the stratum of each row, (S, n); None without strata

    @classmethod
    def of(cls, x: DesignMatrix, preprocessor: Preprocessor) -> Self:
        """Of the features of leaves."""
        columns = [feature.columns for feature in preprocessor.leaf_features]
        places = tuple(j for j, names in enumerate(columns) if names == (preprocessor.strata,))
        own = [j for j, names in enumerate(columns) if names == (preprocessor.offset,)]
        known = x.places.tolist()

        def numbers(chosen: tuple[int, ...] | list[int]) -> Tensor:
            """Of all rows, (S, n, k)."""
            return x.numbers[..., [known.index(j) for j in chosen]]

        values = numbers(own)[..., 0] if own else None
        stratum = numbers(places).argmax(-1) if places else None
        return cls(own[0] if own else None, places, values, stratum)

    @property
    def n_strata(self) -> int:
        """Strata, K; 0 if all rows have one baseline."""
        return len(self.places)


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
