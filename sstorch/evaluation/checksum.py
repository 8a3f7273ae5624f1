"""By what results know the data that they come from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

import pandas as pd

from sstorch.data import Schema, SurvivalData

_TARGET = ("time_", "event_", "entry_", "weight_")


def data_checksum(data: SurvivalData) -> str:
    """Checksum of everything that a model sees of the rows."""
    target = dict(zip(_TARGET, (data.time, data.event, data.entry, data.sample_weight), strict=True))
    frame, extra = data.frame, dict[str, object]()
    if any(name in frame for name in _TARGET):
        extra["features"] = _text(frame)
    schema = Schema.of(frame)
    # In text a category named "3.0" is the number 3, but it is another feature.
    words = {name: list(words) for name, words in schema.categories.items() if _could_be_numbers(words)}
    if words:
        extra["categories"] = words
    content = _text(frame.assign(**target)) + (json.dumps(extra, sort_keys=True) if extra else "")
    return hashlib.sha256(content.encode()).hexdigest()


def _text(frame: pd.DataFrame) -> str:
    return str(frame.to_csv(index=False))


def _could_be_numbers(words: Iterable[str]) -> bool:
    """Whether all words are what numbers look like in text."""
    try:
        return all(word == str(float(word)) for word in words)
    except ValueError:
        return False
