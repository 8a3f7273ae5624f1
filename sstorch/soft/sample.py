"""Rows of splits as tensors, and the untrained trees they are for."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.data import Preprocessor, SurvivalData
from sstorch.exceptions import ConfigError
from sstorch.nn import DesignMatrix, HazardFamily, SoftTree, check_family
from sstorch.objective import Sample
from sstorch.soft.settings import DTYPES, BatchSettings

# Families of users' own that have been looked at.
_CHECKED: set[type[HazardFamily]] = set()


def stack_splits(
    splits: Sequence[SurvivalData],
    x: DesignMatrix,
    preprocessor: Preprocessor,
    settings: BatchSettings,
    n_settings: int = 1,
) -> tuple[SoftTree, Sample]:
    """Untrained trees, and their rows of one event, with features x (S, n, p); shorter splits are padded."""
    device, dtype = torch.device(settings.device), DTYPES[settings.dtype]
    width = max(len(data) for data in splits)
    # The geometric mean time is the unit of model time: log times are then centred on zero.
    log_scale = torch.tensor([np.log(last_times(data)).mean() for data in splits], dtype=torch.float64)

    def stacked(values: Iterable[npt.NDArray[Any]], dtype: torch.dtype = torch.float64) -> Tensor:
        """Values of the rows of all splits, (n_splits, M)."""
        rows = [np.r_[own, np.repeat(own[:1], width - len(own))] for own in values]
        return torch.as_tensor(np.stack(rows), dtype=dtype)

    def logs(times: Iterable[FloatArray]) -> Tensor:
        """Log times in model units, -inf for time zero, (n_splits, M)."""
        with np.errstate(divide="ignore"):
            return stacked(np.log(own) for own in times) - log_scale[:, None]

    log_time, event = logs(data.nominal_time for data in splits), stacked(data.event for data in splits)
    # Objectives are weighted means; the largest weight is made one so that no sum overflows.
    weight = stacked(data.sample_weight / data.sample_weight.max() for data in splits)
    weight[torch.arange(width) >= torch.tensor([[len(data)] for data in splits])] = 0.0
    others: dict[str, Any] = {}
    if any(data.entry.any() for data in splits):
        others["log_entry"] = logs(data.entry for data in splits)
    if any(data.intervals is not None for data in splits):
        lower, upper = zip(*(_bounds(data) for data in splits), strict=True)
        others |= {"log_lower": logs(lower), "log_upper": logs(upper)}
    if others and settings.family.can_rise:
        what = "entry times" if "log_entry" in others else "times within intervals"
        raise ConfigError(f"{what} need curves that cannot increase: use leaves with monotone=True")
    family = copy.deepcopy(settings.family).prepare(log_time, event, weight, log_scale)
    _check_own(family)
    n_problems = n_settings * settings.n_starts
    split = torch.arange(len(splits)).repeat_interleave(n_problems)
    tree = SoftTree(
        len(preprocessor.leaf_features),
        settings.depth,
        family.select(split),
        batch_shape=(len(split),),
        device=device,
        dtype=dtype,
        n_gate_features=len(preprocessor.gate_features),
        start="zeros",
    )
    tree.set_time_scale(log_scale[split].exp())
    if any(data.subject is not None for data in splits):
        # Penalties are held against a mean over subjects: cutting a row in two must not weaken them.
        per_subject = [float(data.sample_weight.sum() / persons_weight(data).sum()) for data in splits]
        others["rows_per_subject"] = torch.tensor(per_subject, dtype=torch.float64)[:, None]
    others = {name: values[split].to(device, dtype) for name, values in others.items()}
    groups = [data.groups for data in splits if data.groups is not None]
    if groups:
        codes = stacked((each.codes for each in groups), torch.long)
        others |= {"group": codes[split].to(device), "n_groups": len(groups[0].labels)}
    sample = Sample(
        replace(x.to(device, dtype), counts=(n_problems,) * len(splits)),
        log_time[split].to(device, dtype),
        event[split].to(device, dtype),
        weight[split].to(device, dtype),
        **others,
    )
    return tree, sample


def _check_own(family: HazardFamily) -> None:
    """Look at a family that is not of this package before it is trained for the first time."""
    kind = type(family)
    if not kind.__module__.startswith("sstorch.") and kind not in _CHECKED:
        check_family(family.select(0))
        _CHECKED.add(kind)


def _bounds(data: SurvivalData) -> tuple[FloatArray, FloatArray]:
    """Bounds of the times within intervals, (n,); 0 and +inf of others."""
    if data.intervals is None:
        return np.zeros(len(data)), np.full(len(data), np.inf)
    within = data.intervals.censored
    return np.where(within, data.intervals.lower, 0.0), np.where(within, data.intervals.upper, np.inf)


def last_times(data: SurvivalData) -> FloatArray:
    """The last time of each subject, (P,); of each row where rows are subjects."""
    if data.subject is None:
        return data.nominal_time
    last = np.zeros(int(data.subject.max()) + 1)
    np.maximum.at(last, data.subject, data.time)
    return last


def persons_weight(data: SurvivalData) -> FloatArray:
    """The weight of each subject, the mean of the rows', (P,)."""
    if data.subject is None:
        return data.sample_weight
    return np.bincount(data.subject, data.sample_weight) / np.bincount(data.subject)
