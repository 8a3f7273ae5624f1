"""Preprocessing of splits that make the same features, and the raw columns of gates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sstorch.data import Preprocessor, Schema, SurvivalData
from sstorch.optim.starts.gate_rows import GateColumns
from sstorch.soft.fixed_columns import check_fixed_columns
from sstorch.soft.settings import BatchSettings


def fit_preprocessors(
    splits: Sequence[SurvivalData], settings: BatchSettings, schema: Schema
) -> tuple[Preprocessor, ...]:
    """Of every split, fitted to its rows; all make the same features."""
    filled = settings.missing_numbers, settings.missing_categories
    schema = schema.with_missing(settings.missing)
    check_fixed_columns(schema, settings.offset_column, settings.strata)
    fitted = tuple(
        Preprocessor(
            schema,
            *filled,
            encodings=settings.encodings,
            offset=settings.offset_column,
            strata=settings.strata,
        ).fit(data.frame, data.uneven_weight)
        for data in splits
    )
    # A curve may have fewer knots in a split, whose other features are zero there: what is zero in all goes.
    bases = [preprocessor.basis_ for preprocessor in fitted if preprocessor.basis_ is not None]
    if bases:
        chosen = np.any([basis.informative for basis in bases], axis=0)
        for preprocessor, basis in zip(fitted, bases, strict=True):
            preprocessor.basis_ = basis.keep(chosen)
    return fitted


def gate_columns(preprocessor: Preprocessor) -> GateColumns:
    """The raw columns of the features that gates see."""
    places: dict[tuple[str, ...], list[int]] = {}
    straight_first = sorted(enumerate(preprocessor.gate_features), key=lambda each: each[1].curved)
    for place, feature in straight_first:
        places.setdefault(feature.columns, []).append(place)
    return GateColumns(
        tuple(np.array(own) for own in places.values()),
        tuple(column in preprocessor.schema.categories for (column,) in places),
    )
