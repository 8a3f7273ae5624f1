"""Problems of one cause: untrained trees, rows of splits as tensors, objectives, and their training."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from sstorch._types import BoolArray, FloatArray
from sstorch.batched import SHARED, Batched
from sstorch.data import Preprocessor, Schema, SurvivalData
from sstorch.data.design_matrix import DesignMatrix, first_features
from sstorch.exceptions import ConfigError, DataError
from sstorch.inference.covariance import HazardCovariance
from sstorch.inference.hazard_rows import row_derivatives
from sstorch.monitoring import Callback, History
from sstorch.newton import UNCONVERGED, newton
from sstorch.nn import HazardFamily, LeafParameters, SoftTree, check_family
from sstorch.objective import GateRidge, L2Parity, RowPenalty, Sample, SmallLeaves, TrainingObjective
from sstorch.objective.parity import GroupParity, merge_equal_rows
from sstorch.objective.penalties import TOO_SMALL, Monotone, NormalPrior, check_penalties
from sstorch.objective.rows import counted_weight
from sstorch.optim import Leaves, Trainer
from sstorch.optim.run import Checkpoint
from sstorch.soft.design import Design, in_double, null_start
from sstorch.soft.settings import DTYPES, BatchSettings, Coefficients

# Coefficient of the penalty on slopes that go the wrong way. What is left of them is taken away at the end,
# for 5e-6 of the objective on GBSG2 with three wrong directions; a larger one only slows the minimisation.
_MONOTONE = 10.0
# Standard deviation below which a feature of gates is the same in all rows.
_CONSTANT = 1e-9
# Share of rows with different features above which merging the others gains nothing.
_FEW_EQUAL = 0.9


@dataclass(frozen=True)
class Solved:
    """Regressions with given penalties: objectives (R,), and the first with prior and map to its leaf."""

    objective: Tensor
    converged: Tensor  # whether it is their minimum, boolean (R,)
    theta: Tensor
    precision: Tensor
    map: Tensor


@dataclass(frozen=True)
class Problems(Batched):
    """Untrained trees of one cause: their rows, and the objectives without and with penalties on rows."""

    tree: SoftTree
    sample: Sample
    plain: TrainingObjective  # without penalties on rows, for starts
    objective: TrainingObjective
    curved: BoolArray = field(metadata=SHARED)  # features that are curves
    settings: BatchSettings = field(metadata=SHARED)  # with the leaf of the cause

    @classmethod
    def of(
        cls,
        splits: Sequence[SurvivalData],
        x: DesignMatrix,
        preprocessors: Sequence[Preprocessor],
        settings: BatchSettings,
        coefficients: tuple[Coefficients, ...],
    ) -> Self:
        """Problems of splits with one event, whose encoded rows x (S, n, p) are available."""
        n_starts, own = settings.n_starts, settings.own
        tree, sample = stack_splits(splits, x, preprocessors[0], settings, len(coefficients))
        curved = np.array([feature.curved for feature in preprocessors[0].features])
        of_leaves = curved[len(curved) - tree.in_features :]
        given: dict[str, Any] = {}
        for name in ("ridge", "gate_ridge", "roughness"):  # one value where all problems agree, else (R,)
            values = torch.tensor([getattr(each, name) for each in coefficients], dtype=torch.float64)
            each = values.repeat_interleave(n_starts).repeat(len(splits))
            given[name] = float(values[0]) if bool((values == values[0]).all()) else each
        make = partial(
            TrainingObjective,
            **given,
            curved=torch.as_tensor(of_leaves) if of_leaves.any() else None,
            monotone=_monotone(settings, preprocessors, len(coefficients) * n_starts),
            own=own,
        )
        row_penalties = [each for each in own if isinstance(each, RowPenalty)]
        if settings.min_leaf and settings.depth and not isinstance(settings.trainer, Leaves):  # gates move
            row_penalties.append(SmallLeaves(TOO_SMALL, settings.min_leaf))
        if settings.fairness is not None:
            sample = _merged(sample)
            rhos = [setting.rho for setting in coefficients]
            row_penalties.append(_parity(settings.fairness, rhos, splits, tree, n_starts))
        plain = make(row_penalties=())
        objective = make(row_penalties=row_penalties) if row_penalties else plain
        return cls(tree, sample, plain, objective, curved, settings)

    def under(self, prior: NormalPrior, precision: Tensor, divides: Tensor) -> Self:
        """The problems with a prior of the leaves, and of gates that divide hazards, (R, G).

        Gates have a precision, (R,), by standard deviation; where it is NaN they have the given ridge.
        """
        ridge, known = None, ~precision.isnan()
        if self.settings.depth:
            scale = torch.where(known[:, None], gate_deviations(self.tree, self.sample), 1.0)
            scale = scale[:, None] * divides[..., None]
            ridge = GateRidge(torch.where(known, precision, self.settings.gate_ridge), scale)
        plain, objective = (each.with_prior(prior, ridge) for each in (self.plain, self.objective))
        return replace(self, plain=plain, objective=objective)

    def solve(self, preprocessor: Preprocessor) -> Solved:
        """Give regressions with an offset or strata their leaves, by Newton's method at given penalties."""
        n_splits, each = len(self.sample.x.counts), self.sample.x.counts[0]
        n_shapes = len(self.tree.family.shape_names)
        objective = self.sample.weight.new_zeros(n_splits * each, dtype=torch.float64)
        converged = torch.zeros_like(objective, dtype=torch.bool)
        parts = []
        for number in range(each):
            own = torch.arange(n_splits, device=objective.device) * each + number
            tree = self.tree.select(own)
            sample, family = in_double(self.sample.select(own), tree.family)
            design = Design.of(sample, tree.in_features, preprocessor)
            weight = counted_weight(sample)
            hazards = design.hazards(family, sample, weight)
            total = weight.sum(-1)
            curvature = self.objective.select(own).leaf_curvature(tree.leaf_parameters()).detach()[:, 0]
            count = total / sample.loss_weight.sum(-1)
            prior = design.given_prior(count[:, None] * curvature[:, : tree.in_features].double(), n_shapes)
            at = newton(hazards, prior, null_start(hazards))
            objective[own] = (at.loss + prior.value(at.theta)) / total
            converged[own] = at.gain(prior) <= UNCONVERGED
            parts.append(design.leaves(at.theta, 1, n_shapes))
        stacked = zip(*(vars(part).values() for part in parts), strict=True)
        self.tree.set_leaves(LeafParameters(*(torch.stack(each, 1).flatten(0, 1) for each in stacked)))
        (map,) = design.map_of(0, 1, n_shapes).cpu()
        return Solved(objective, converged, at.theta[0].cpu(), prior.precision[0].cpu(), map)

    def covariance(self, solved: Solved | None) -> HazardCovariance:
        """Of the coefficients of a single problem, by its Hessian; penalties are added to the mean loss."""
        tree = self.tree.select(0)
        leaves = LeafParameters(*(part.detach().double() for part in vars(tree.leaf_parameters()).values()))
        sample, family = in_double(self.sample, self.tree.family)
        leaf = torch.zeros(sample.weight.shape[1], dtype=torch.long, device=sample.weight.device)
        features, _, second = row_derivatives(family, leaves, leaf, sample)
        if solved is None:
            size, p = leaves.flatten().shape[1], self.tree.in_features
            order = torch.tensor([p, *range(p), *range(p + 1, size)])  # the intercept first
            count = counted_weight(sample).sum() / sample.loss_weight.sum()  # the covariance counts rows
            curvature = self.objective.leaf_curvature(self.tree.leaf_parameters()).detach()[0, 0].double()
            theta, map = leaves.flatten()[0].cpu()[order], torch.eye(size, dtype=torch.float64)[:, order]
            precision = (count * curvature).cpu()[order]
        else:
            theta, map, precision = solved.theta, solved.map, solved.precision
        information = map.mT @ features.information(second).cpu() @ map
        return HazardCovariance(map[None], theta, information, precision, torch.zeros(1, dtype=torch.long))

    def train(
        self, trainer: Trainer, callbacks: Sequence[Callback], checkpoint: Checkpoint | None
    ) -> tuple[Tensor, History]:
        """Objective of the trained problems, (R,), and the records."""
        history = trainer.train(self.tree, self.objective, self.sample, callbacks, checkpoint)
        with torch.no_grad():
            final: Tensor = self.objective(self.tree, self.sample)
        if self.settings.own:
            steps = history.steps
            failed = ~final.isfinite()
            failed[steps["problem"][steps["status"] == "NON_FINITE"].to_numpy(np.int64)] = True
            stopped = failed.nonzero().squeeze(-1)
            if len(stopped):
                check_penalties(self.settings.own, self.tree, self.sample, stopped)
        return final, history


def gate_deviations(tree: SoftTree, sample: Sample) -> Tensor:
    """Weighted standard deviations (R, p) of features of gates; one, the range, if the same in all rows."""
    x, counts = first_features(sample.x, tree.n_gate_features).to_dense().double(), sample.x.counts
    first = np.cumsum(counts) - counts
    share = sample.normalised_weight[first].double()[..., None]
    centred = x - (share * x).sum(-2, keepdim=True)
    deviation = (share * centred.square()).sum(-2).sqrt()
    deviation = torch.where(deviation > _CONSTANT, deviation, 1.0)
    return deviation.repeat_interleave(torch.tensor(counts, device=x.device), dim=0)


def _monotone(
    settings: BatchSettings, preprocessors: Sequence[Preprocessor], n_problems: int
) -> Monotone | None:
    """The penalty on effects against their direction, for so many problems a split."""
    if not settings.monotone:
        return None
    # Where exp(g) is a ratio of times, a larger predictor is a longer life.
    risk = -1.0 if settings.family.ratio == "time ratio" else 1.0
    signs = {column: risk if way == "up" else -risk for column, way in settings.monotone}
    cones = [
        np.concatenate([sign * each.leaf_slopes(column) for column, sign in signs.items()])
        for each in preprocessors
    ]
    # A split with fewer pieces repeats one, which asks nothing more of it.
    n_pieces = max(len(cone) for cone in cones)
    cones = [np.concatenate([cone, np.repeat(cone[:1], n_pieces - len(cone), axis=0)]) for cone in cones]
    cone = torch.as_tensor(np.stack(cones)).repeat_interleave(n_problems, dim=0)
    return Monotone(torch.full((len(cone),), _MONOTONE, dtype=torch.float64), cone)


def check_groups(splits: Sequence[SurvivalData]) -> None:
    """Require the same sensitive groups in all splits, at least two of them with weight in each."""
    for number, data in enumerate(splits):
        groups = data.groups
        if groups is None or splits[0].groups is None:
            raise ConfigError("a fairness penalty needs the sensitive groups: fit(X, y, sensitive=...)")
        if groups.labels != splits[0].groups.labels:
            raise ConfigError("the splits have different sensitive groups: take them from one table")
        present = np.unique(groups.codes[data.sample_weight > 0])
        if len(present) < 2:
            where = f" of split {number}" if len(splits) > 1 else ""
            raise DataError(
                f"the training rows{where} are all of one group, {groups.name}={groups.labels[present[0]]}: "
                "there is no other group to compare with; use more rows, other folds, or no fairness penalty"
            )


def _merged(sample: Sample) -> Sample:
    """The rows, equal ones counted once by the fairness penalty; as they are if few are equal."""
    assert sample.group is not None
    counts = np.array(sample.x.counts)
    first = torch.as_tensor(counts.cumsum() - counts, device=sample.weight.device)
    group, weight = sample.group[first].cpu().numpy(), sample.weight[first].double().cpu().numpy()
    matrices = sample.x.to_dense().double().cpu().numpy()
    merged = np.stack([merge_equal_rows(x, g, w) for x, g, w in zip(matrices, group, weight, strict=True)])
    if (merged > 0).sum() > _FEW_EQUAL * (weight > 0).sum():
        return sample
    per_problem = torch.as_tensor(counts, device=sample.weight.device)
    weights = torch.as_tensor(merged).to(sample.weight).repeat_interleave(per_problem, dim=0)
    return replace(sample, merged_weight=weights)


def _parity(
    settings: L2Parity, rhos: Sequence[float], splits: Sequence[SurvivalData], tree: SoftTree, n_starts: int
) -> GroupParity:
    """The fairness penalty of every problem: rho, and an integral over its own training times."""
    n_problems = len(rhos) * n_starts
    first = torch.arange(len(splits)) * n_problems
    log_scale = tree.log_time_scale.detach().cpu().double()[first]
    corners = tree.family.corners().detach().cpu().double()
    corners = corners.expand(tree.n_problems, -1)[first]
    at = (corners + log_scale[:, None]).exp().tolist()
    rho = torch.tensor(rhos, dtype=torch.float64).repeat_interleave(n_starts).repeat(len(splits))
    times = [data.nominal_time[data.sample_weight > 0] for data in splits]
    return settings.penalty(rho, times, log_scale.numpy(), [n_problems] * len(splits), at)


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
        lower, upper = zip(*(data.bounds for data in splits), strict=True)
        others |= {"log_lower": logs(lower), "log_upper": logs(upper)}
    family = copy.deepcopy(settings.family).prepare(log_time, event, weight, log_scale)
    kind = type(family)
    if not kind.__module__.startswith("sstorch.") and kind not in _CHECKED:
        check_family(family.select(0))  # of a user, before it is trained for the first time
        _CHECKED.add(kind)
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
    tree.log_time_scale.copy_(log_scale[split])
    if any(data.subject is not None for data in splits):
        # Penalties are held against a mean over subjects: cutting a row in two must not weaken them. The
        # weight of a subject is the mean of its rows'.
        per_subject = []
        for data in splits:
            rows = np.arange(len(data)) if data.subject is None else data.subject
            own = np.bincount(rows, data.sample_weight) / np.bincount(rows)
            per_subject.append(data.sample_weight.sum() / own.sum())
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


def last_times(data: SurvivalData) -> FloatArray:
    """The last time of each subject, (P,); of each row where rows are subjects."""
    if data.subject is None:
        return data.nominal_time
    return np.asarray(pd.Series(data.time).groupby(data.subject).max())


def fit_preprocessors(
    splits: Sequence[SurvivalData], settings: BatchSettings, schema: Schema
) -> tuple[Preprocessor, ...]:
    """Of every split, fitted to its rows; all make the same features."""
    settings.check_fixed_columns(schema)
    offset, strata = settings.offset, settings.strata
    made = (Preprocessor(schema, encodings=settings.encodings, offset=offset, strata=strata) for _ in splits)
    fitted = tuple(each.fit(data.frame, data.uneven_weight) for each, data in zip(made, splits, strict=True))
    # A curve may have fewer knots in a split, whose other features are zero there: what is zero in all goes.
    bases = [preprocessor.basis_ for preprocessor in fitted if preprocessor.basis_ is not None]
    if bases:
        chosen = np.any([basis.informative for basis in bases], axis=0)
        for preprocessor, basis in zip(fitted, bases, strict=True):
            preprocessor.basis_ = basis.keep(chosen)
    return fitted


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
