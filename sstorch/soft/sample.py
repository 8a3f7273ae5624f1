"""Rows of splits as tensors, and the untrained trees they are for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.data import Preprocessor, SurvivalData
from sstorch.data.coded import CodedMatrix, SplitFeatures, SplitMatrices
from sstorch.exceptions import ConfigError
from sstorch.nn import DesignMatrix, HazardFamily, SoftTree, check_family
from sstorch.objective import Sample
from sstorch.soft.settings import DTYPES, BatchSettings

# Families of users' own that have been looked at.
_CHECKED: set[type[HazardFamily]] = set()


def stack_splits(
    splits: Sequence[SurvivalData],
    encoded: Sequence[FloatArray | CodedMatrix],
    preprocessor: Preprocessor,
    settings: BatchSettings,
    n_settings: int = 1,
) -> tuple[SoftTree, Sample]:
    """Untrained trees, and their rows of one event, `encoded` (n, p) a split; shorter splits are padded."""
    device, dtype = torch.device(settings.device), DTYPES[settings.dtype]
    width = max(len(data) for data in splits)
    features, times, entries, events, weights, groups = [], [], [], [], [], []
    lowers: list[FloatArray] = []
    uppers: list[FloatArray] = []
    for data, own in zip(splits, encoded, strict=True):
        rows = np.r_[np.arange(len(data)), np.zeros(width - len(data), dtype=np.int64)]
        x = own if isinstance(own, CodedMatrix) else CodedMatrix.of(torch.as_tensor(own))
        features.append(x.to(device, dtype))
        times.append(np.log(data.nominal_time[rows]))
        with np.errstate(divide="ignore"):  # entry at time zero is -inf
            entries.append(np.log(data.entry[rows]))
            for bounds, values in zip((lowers, uppers), _bounds(data), strict=True):
                bounds.append(np.log(values[rows]))
        events.append(data.event[rows])
        # Objectives are weighted means; the largest weight is made one so that no sum overflows.
        weight = data.sample_weight[rows] / data.sample_weight.max()
        weights.append(np.where(np.arange(width) < len(data), weight, 0.0))
        groups.append(np.zeros(width, dtype=np.int64) if data.groups is None else data.groups.codes[rows])

    def stacked(values: list[np.ndarray]) -> Tensor:
        return torch.as_tensor(np.stack(values), dtype=torch.float64)

    # The geometric mean time is the unit of model time: log times are then centred on zero.
    log_scale = torch.tensor([np.log(last_times(data)).mean() for data in splits], dtype=torch.float64)
    log_time, event, weight = stacked(times) - log_scale[:, None], stacked(events), stacked(weights)
    log_entry = stacked(entries) - log_scale[:, None] if any(data.entry.any() for data in splits) else None
    family = settings.family
    intervals = any(data.intervals is not None for data in splits)
    if (log_entry is not None or intervals) and family.can_rise:
        what = "entry times" if log_entry is not None else "times within intervals"
        raise ConfigError(f"{what} need curves that cannot increase: use leaves with monotone=True")
    family = family.prepare(log_time, event, weight, log_scale)
    _check_own(family)

    n_problems = n_settings * settings.n_starts
    split = torch.arange(len(splits)).repeat_interleave(n_problems)
    matrices: SplitFeatures = SplitMatrices.of(features)
    if not settings.plainly_estimated:
        # What other trainers read is one tensor, in which padding repeats a row.
        matrices = torch.stack(
            [
                torch.cat([each.to_dense(), each[:1].to_dense().expand(width - len(each), -1)])
                for each in features
            ]
        )
    tree = SoftTree(
        len(preprocessor.leaf_features),
        settings.depth,
        family.select(split),
        (len(split),),
        device=device,
        dtype=dtype,
        n_gate_features=len(preprocessor.gate_features),
    )
    tree.set_time_scale(log_scale[split].exp())
    sample = Sample(
        DesignMatrix(matrices, (n_problems,) * len(splits)),
        log_time[split].to(device, dtype),
        event[split].to(device, dtype),
        weight[split].to(device, dtype),
        None if log_entry is None else log_entry[split].to(device, dtype),
    )
    if intervals:
        log_lower, log_upper = (
            (stacked(bounds) - log_scale[:, None])[split].to(device, dtype) for bounds in (lowers, uppers)
        )
        sample = replace(sample, log_lower=log_lower, log_upper=log_upper)
    if any(data.subject is not None for data in splits):
        # Penalties are held against a mean over subjects: cutting a row in two must not weaken them.
        per_subject = [float(data.sample_weight.sum() / persons_weight(data).sum()) for data in splits]
        each = torch.tensor(per_subject, device=device, dtype=dtype)[split][:, None]
        sample = replace(sample, rows_per_subject=each)
    if settings.fairness is not None and splits[0].groups is not None:
        codes = torch.as_tensor(np.stack(groups), device=device)[split.to(device)]
        sample = replace(sample, group=codes, n_groups=len(splits[0].groups.labels))
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
