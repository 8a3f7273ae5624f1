"""Recalibration of the leaves of a soft tree by maximum likelihood."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from sstorch.data import SurvivalData
from sstorch.exceptions import ConfigError
from sstorch.fitted.tree import FittedTree
from sstorch.groups.recalibration import Recalibrate, Recalibration, check_events
from sstorch.metrics.weights import check_weighting
from sstorch.nn import SoftTree
from sstorch.nn.hazards.numeric import minimize_small


def recalibrated(tree: FittedTree, data: SurvivalData, how: Recalibrate) -> tuple[SoftTree, Recalibration]:
    """The tree with other leaves, by maximum likelihood of the rows, and what was changed.

    Raises ConfigError: curves of the leaves can rise; DataError: fewer events than parameters.
    """
    module, family = tree.module, tree.module.family
    if family.can_rise:
        raise ConfigError("recalibration needs curves that cannot increase: use leaves with monotone=True")
    n_shape = len(family.shape_names)
    weighting = check_weighting(data.sample_weight, len(data))
    n_events = check_events(
        data.event, weighting, how, {"intercept": 1, "slope": 2, "baseline": 1 + n_shape}[how], stacklevel=6
    )
    loss = _Loss(tree, data)
    before = torch.zeros(2 + n_shape, dtype=torch.float64)
    before[1] = 1.0
    free = torch.zeros(2 + n_shape, dtype=torch.bool)
    free[{"intercept": slice(0, 1), "slope": slice(0, 2), "baseline": slice(0, None)}[how]] = True
    free[1] = how == "slope"

    def losses(moved: Tensor) -> Tensor:
        return loss(before.masked_scatter(free, moved[0]))[None]

    found = minimize_small(losses, before[None, free], torch.ones(1, dtype=torch.bool))
    after = before.masked_scatter(free, found[0])
    errors: list[float | None] = [None, None]
    if how != "baseline":  # where shapes and intercept can mean the same, they have none
        errors[: found.shape[1]] = loss.errors(before, free, found[0])
    with torch.no_grad():
        ratios = [loss.observed / loss.expected(theta) for theta in (before, after)]
        values = [-float(loss(theta)) - loss.log_unit for theta in (before, after)]
    intercept, slope, *shape = after.tolist()
    report = Recalibration(
        how,
        len(data),
        n_events,
        intercept,
        slope,
        dict(zip(family.shape_names, shape, strict=True)) if how == "baseline" else {},
        errors[0],
        errors[1],
        (ratios[0], ratios[1]),
        (values[0], values[1]),
    )
    return _changed(module, after), report


class _Loss:
    """Mean negative log-likelihood of rows with a linear predictor a + b g and shapes moved by d."""

    def __init__(self, tree: FittedTree, data: SurvivalData) -> None:
        module = copy.deepcopy(tree.module).double().cpu()
        self._family, self._mixture = module.family, tree.prediction == "mixture"
        x = torch.as_tensor(tree.preprocessor.transform(data.frame))
        with torch.no_grad():
            log_p, linear, shape = module.leaf_scores(x, tree.prediction)
        self._log_p, self._linear, self._shape = log_p, linear, shape
        scale = float(module.log_time_scale)
        self._log_time = torch.as_tensor(data.time).log()[:, None] - scale
        self._event = torch.as_tensor(data.event)[:, None].double()
        self._weight = torch.as_tensor(data.sample_weight) / float(data.sample_weight.sum())
        self._subject = None if data.subject is None else torch.as_tensor(data.subject)
        late = bool(data.entry.any())
        self._log_entry = torch.as_tensor(data.entry).log()[:, None] - scale if late else None
        self.observed = float((self._weight * self._event[:, 0]).sum())
        # Hazards are per unit of model time: what the log-likelihood in original units has less.
        self.log_unit = scale * self.observed

    def __call__(self, theta: Tensor) -> Tensor:
        return (self._weight * self._rows(theta)).sum()

    def errors(self, before: Tensor, free: Tensor, found: Tensor) -> list[float]:
        """Sandwich errors A^-1 B A^-1 of the free numbers, by scores of subjects, whatever the family."""

        def rows(moved: Tensor) -> Tensor:
            return self._rows(before.masked_scatter(free, moved))

        scores = torch.autograd.functional.jacobian(rows, found)
        scores = self._weight[:, None] * scores
        if self._subject is not None:
            sums = scores.new_zeros(int(self._subject.max()) + 1, scores.shape[1])
            scores = sums.index_add(0, self._subject, scores)
        hessian = torch.autograd.functional.hessian(lambda moved: (self._weight * rows(moved)).sum(), found)
        inverse = torch.linalg.inv(hessian)
        return (inverse @ scores.mT @ scores @ inverse).diagonal().sqrt().tolist()  # type: ignore[no-any-return]

    def _rows(self, theta: Tensor) -> Tensor:
        """Negative log-likelihood of each row, in model units."""
        linear, shape = self._moved(theta)
        if not self._mixture:
            rows = self._family.loss(self._log_time, self._event, linear, shape, self._log_entry)
            return rows.reshape(-1)
        rows = -torch.logsumexp(
            self._log_p - self._family.loss(self._log_time, self._event, linear, shape), 0
        )
        if self._log_entry is not None:
            rows = rows - self._hazard(self._log_entry, linear, shape)
        return rows.reshape(-1)

    def expected(self, theta: Tensor) -> float:
        """Weighted mean of H(t) - H(entry): events that are expected of a row."""
        linear, shape = self._moved(theta)
        rows = self._hazard(self._log_time, linear, shape)
        if self._log_entry is not None:
            rows = rows - self._hazard(self._log_entry, linear, shape)
        return float((self._weight * rows.reshape(-1)).sum())

    def _hazard(self, log_time: Tensor, linear: Tensor, shape: Tensor) -> Tensor:
        """H(t) of the rows, 0 at time zero, whose logarithm is infinite."""
        begun = torch.isfinite(log_time)
        each = self._family.cumulative_hazard(log_time.where(begun, torch.zeros(())), linear, shape)
        mixed = -torch.logsumexp(self._log_p - each, 0) if self._mixture else each
        return mixed.where(begun, torch.zeros(()))

    def _moved(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        return theta[0] + theta[1] * self._linear, self._shape + theta[2:]


@torch.no_grad()
def _changed(module: SoftTree, theta: Tensor) -> SoftTree:
    new = copy.deepcopy(module)
    for node in new.topology.leaves:
        leaf = new.leaf(node)
        leaf.slope.mul_(theta[1].to(leaf.slope))
        leaf.intercept.mul_(theta[1].to(leaf.slope)).add_(theta[0].to(leaf.slope))
        leaf.shape.add_(theta[2:].to(leaf.shape))
    return new
