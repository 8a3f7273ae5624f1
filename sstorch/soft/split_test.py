"""Does the regression of a leaf hold for all its rows, or do its parameters change with a column?"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy.stats import rankdata
from torch import Tensor

from sstorch._types import BoolArray, FloatArray, IntArray
from sstorch.checks import check_choice, check_integer, is_number_of, rows_text
from sstorch.data import SurvivalData
from sstorch.data.causes import cause_number
from sstorch.data.coded import dense
from sstorch.data.columns import labels
from sstorch.exceptions import ConfigError, DataError
from sstorch.fitted.tree import FittedTree
from sstorch.memory import at_once
from sstorch.nn import HazardFamily
from sstorch.soft.estimator import SoftEstimator

Tested = Literal["all", "level"]

# Splits of a numeric column that are looked at; of more distinct values as many, evenly among the rows.
_MOST_SPLITS = 200
# Eigenvalues of a matrix of unit diagonal below this share of the largest are directions that the rows do not
# determine, such as that of a constant added to all categories and taken off the intercept.
_RANK = 1e-8
# Sums of squares below this share of the rows are rounding errors of zero, such as the scores of the level in
# a category that has a slope of its own.
_ROUNDING = 1e-12
# Leverage of a row that has a category to itself is 1, and its score is 0.
_MOST_LEVERAGE = 0.9
# Elements of the largest intermediate, (flips, splits, parameters).
_ELEMENTS = 2**21
_ALPHA = 0.05
_COLUMNS = ["statistic", "at", "p", "adjusted p"]


@dataclass(frozen=True)
class SplitTest:
    """Tests of the regressions in some leaves against a split by each column.

    Attributes:
        table: indexed by group and column, smallest p first: ``statistic``, in units of about its mean at one
            split where nothing changes; ``at``, the value of a numeric column that parts the rows where the
            statistic is reached, nan for categories; ``p`` of this column alone; and ``adjusted p``, for the
            search over all columns of the group. All are nan for a column that cannot split the rows.
        rows: of each group, indexed by group.
        parameters: what was tested, ``"all"`` or ``"level"``.
    """

    table: pd.DataFrame
    rows: pd.Series
    parameters: Tested

    @property
    def overall(self) -> pd.Series:
        """The smallest adjusted p of each group, indexed by group: below .05, a split pays; 1 for no test."""
        smallest = self.table["adjusted p"].groupby(level="group").min()
        return smallest.fillna(1.0).rename("overall p")

    def pays(self, alpha: float = _ALPHA) -> bool:
        """Whether a split pays in some leaf, at level ``alpha`` in each."""
        return bool((self.overall <= alpha).any())

    def __str__(self) -> str:
        asked = "parameters" if self.parameters == "all" else "intercept and shape"
        lines = []
        groups = self.table.groupby(level="group")
        for (group, table), p, n_rows in zip(groups, self.overall, self.rows, strict=True):
            verdict = f"change with {table.index[0][1]}" if p <= _ALPHA else "may hold for all rows"
            lines.append(f"group {group}, {n_rows} rows: {asked} {verdict}, p = {p:.3f}")
            text = table.droplevel("group").to_string(float_format=lambda value: f"{value:.4g}", na_rep="-")
            lines.append(text)
        return "\n".join(lines)


def split_test(
    tree: SoftEstimator,
    X: object,
    y: object,
    group: int | None = None,
    parameters: Tested = "all",
    sample_weight: object = None,
    n_flips: int = 999,
    trim: float = 0.1,
    random_state: int = 0,
    cause: int | str = 1,
) -> SplitTest:
    """Test whether the regression of a leaf holds for all its rows or changes with a column.

    Scores are the derivatives of each row's log-likelihood in intercept, slopes and shapes. If these are
    the same for all rows, sums of scores along a column wander about zero; where they drift off, a split
    by the column pays. Sums are decorrelated and squared, in units of their mean under the null (for
    ``"level"``, of the published t (1 - t)). The statistic of a numeric column is the largest over its
    splits (supLM), that of a categorical column the mean over its categories, as in model-based recursive
    partitioning.

    p values are the share of random signs of the scores, re-estimation of the parameters included, whose
    statistic is as large; permuting the column instead supposes that it does not depend on the features
    of the leaf. Before the test one Newton step leads from the leaf's parameters to the maximum of the
    likelihood of its rows: scores of penalised parameters have a sum, and a drift along skewed columns
    that would pass for a change even if they were centred. For categorical columns flipped scores are
    corrected for the leverage of their rows.

    Args:
        tree: a fitted soft tree.
        X: rows, best those of training; of each leaf those whose most probable path ends there.
        y: their outcome, as in ``fit``.
        group: number of the group to test; None for all that have rows.
        parameters: ``"all"``, whether a split with regressions of their own would pay; ``"level"``,
            intercept and shapes alone, slopes being free but shared.
        sample_weight: (n,), >= 0, as in ``fit``.
        n_flips: sets of signs.
        trim: smallest share of the leaf's rows on either side of a split by a number, in (0, 1/2).
        random_state: seed of the signs.
        cause: of competing ones, by number or name, whose hazard is tested.

    Raises:
        DataError: the data cannot be used, or the leaf has none of the rows.
        ConfigError: an argument has a value that does not exist.

    References:
        Zeileis and Hornik (2007), "Generalized M-fluctuation tests for parameter instability", Statistica
        Neerlandica 61, 488-508. Zeileis, Hothorn and Hornik (2008), "Model-based recursive partitioning",
        Journal of Computational and Graphical Statistics 17, 492-514. Hemerik, Goeman and Finos (2020),
        "Robust testing in generalized linear models by sign flipping score contributions", Journal of
        the Royal Statistical Society B 82, 841-864. MacKinnon and White (1985), Journal of Econometrics 29,
        305-325, for the leverage. Westfall and Young (1993), "Resampling-based multiple
        testing", for the p values adjusted for the search over columns.
    """
    data = tree._scored(X, y, sample_weight)
    fitted = tree._tree
    if fitted.competing:
        name = fitted.causes[cause_number(cause, fitted.causes) - 1]
        fitted, data = fitted.of_cause(name), data.of_cause(name)
    return leaf_tests(fitted, data, group, parameters, n_flips, trim, random_state)


def leaf_tests(
    tree: FittedTree,
    data: SurvivalData,
    group: int | None = None,
    parameters: Tested = "all",
    n_flips: int = 999,
    trim: float = 0.1,
    seed: int = 0,
) -> SplitTest:
    """Test the regressions of leaves against splits: see :func:`split_test`.

    Args:
        tree: trained.
        data: rows, best those of training, with their weights and entry times.
        group: its number; None for all that have rows.
        parameters: that may change.
        n_flips: random sets of signs.
        trim: smallest share of the rows on either side of a split, in (0, 1/2).
        seed: of the signs.

    Raises:
        ConfigError: an argument has a value that does not exist.
        DataError: the leaf has no rows, or some row has no finite likelihood there.
    """
    check_choice(parameters, "parameters", get_args(Tested))
    count = check_integer("n_flips", n_flips, 1)
    if not is_number_of(trim, float) or not 0 < trim < 0.5:
        raise ConfigError(f"trim must be a share in (0, 1/2), got {trim!r}")
    check_integer("random_state", seed, 0)
    numbers = tree.group_numbers
    if group is not None and check_integer("group", group, 1) > len(numbers):
        raise ConfigError(f"group must be at most {len(numbers)}, the number of groups, got {group}")
    data = data.subset(data.sample_weight > 0)
    x = tree.encode(data.frame)
    assigned = numbers[tree.leaf(x)]
    if group is not None and not (assigned == group).any():
        raise DataError(f"group {group} has none of the rows; test another, or other rows")
    tables, rows = {}, {}
    for number in sorted(numbers.tolist()) if group is None else [group]:
        inside = np.flatnonzero(assigned == number)
        if len(inside):
            part = data.subset(inside)
            scores = _Scores.of(tree, dense(x[torch.as_tensor(inside, device=x.device)]), part, number)
            columns = {name: _Column.of(tree, part.frame[name], trim) for name in part.frame.columns}
            tables[number] = _table(scores, columns, parameters, count, seed, part.person)
            rows[number] = len(inside)
    sizes = pd.Series(rows, name="rows").rename_axis("group")
    return SplitTest(pd.concat(tables, names=["group"]), sizes, parameters)


def _table(
    scores: _Scores,
    columns: Mapping[str, _Column | None],
    parameters: Tested,
    n_flips: int,
    seed: int,
    person: IntArray | None,
) -> pd.DataFrame:
    """The table of one leaf."""
    n = len(scores.effective)
    tested = scores.is_level if parameters == "level" else np.ones_like(scores.is_level)
    part = scores.effective[:, tested]
    whitening = np.zeros((len(tested), part.shape[1]))
    whitening[tested] = _inverse_root(part.T @ part / n)
    # The same signs for all columns, so that their statistics depend on each other as they do in the data.
    # The first set flips nothing: its statistics are those observed.
    # Rows of a person are flipped together: they depend on each other.
    n_flipped = n if person is None else int(person.max()) + 1
    signs = np.random.default_rng(seed).choice(np.array([-1, 1], dtype=np.int8), (n_flips + 1, n_flipped))
    signs = signs if person is None else signs[:, person]
    signs[0] = 1
    found = {
        name: _statistics(scores, column, whitening, signs)
        for name, column in columns.items()
        if column is not None
    }
    table = pd.DataFrame(np.nan, index=pd.Index(columns, name="column"), columns=_COLUMNS)
    if found:
        statistics = np.column_stack([values for values, _ in found.values()])
        p = rankdata(-statistics, method="max", axis=0) / len(statistics)
        # Single-step minP: how often the smallest p over the columns of a set of signs is as small.
        smallest = np.sort(p.min(axis=1))
        adjusted = np.searchsorted(smallest, p[0], side="right") / len(smallest)
        at = [cut for _, cut in found.values()]
        table.loc[list(found)] = np.column_stack([statistics[0], at, p[0], adjusted])
    return table.iloc[np.lexsort((-table["statistic"], table["p"]))]


# ---------------------------------------------------------------------- scores


class _Scores(NamedTuple):
    """Derivatives of the log-likelihood of n rows in d parameters, scaled so that neither has a unit.

    Attributes:
        effective: (n, d), with sum zero, all but in directions that the rows do not determine.
        design: derivatives of the q numbers that a leaf has for a row, predictor and shapes, (n, q, d).
        curved: second derivatives of the loss in these numbers times ``design``, (n, q, d).
        solve: pseudo-inverse of the information, (d, d).
        is_level: marks intercept and shapes, (d,).
        flipped: ``effective`` as it would be of rows that had no part in the estimates, whose signs are
            flipped, (n, d). A row draws the estimates towards itself by its leverage h, so that its score has
            the variance 1 - h in place of 1; flips of these would be too close to zero. With a Weibull leaf,
            skewed columns and 150 rows sums over categories had 1.2 times the mean square of their flips.
    """

    effective: FloatArray
    design: FloatArray
    curved: FloatArray
    solve: FloatArray
    is_level: BoolArray
    flipped: FloatArray

    @classmethod
    def of(cls, tree: FittedTree, x: Tensor, data: SurvivalData, group: int) -> _Scores:
        """At the parameters of the leaf of a group, for rows with encoded features x (n, p)."""
        module = copy.deepcopy(tree.module).to("cpu", torch.float64)
        leaf = int(np.flatnonzero(tree.group_numbers == group)[0])
        parameters = module.leaf_parameters([module.topology.leaves[leaf]])
        x = parameters.features(x.detach().to("cpu", torch.float64))
        with torch.no_grad():
            linear, shape = parameters.linear_predictor(x)[None], parameters.shape_parameters(x)[None]
        scale = float(module.log_time_scale)
        first, second = _derivatives(module.family.expand((1,)), data, scale, linear, shape)
        finite = np.column_stack([np.isfinite(part.reshape(len(x), -1)) for part in (first, second)])
        if (bad := (~finite).sum(axis=1) > 0).any():
            raise DataError(
                f"of the rows in group {group} the likelihood overflows in {rows_text(bad)}; leave them out"
            )
        weight = data.sample_weight / data.sample_weight.mean()
        design, is_level = _design(x.numpy(), shape.shape[-1], parameters.shape_slope.shape[-2] > 0)
        scores = np.einsum("nq,nqd->nd", -first * weight[:, None], design)
        size = np.sqrt((scores**2).mean(axis=0))
        unit = np.divide(1, size, out=np.zeros_like(size), where=size > 0)
        design, scores = design * unit, scores * unit
        curved = np.einsum("nqr,nrd->nqd", second * weight[:, None, None], design)
        information = _inner(design, curved)
        root = _inverse_root(information)
        solve = root @ root.T
        # One Newton step to the maximum of the likelihood of these rows: penalties, soft gates, slopes shared
        # with other leaves and other rows than those of training leave scores with a sum, and so with a drift
        # along every column that is correlated with the features.
        step = solve @ scores.sum(axis=0)
        scores = scores - np.einsum("nqd,nq->nd", design, curved @ step)
        leverage = np.einsum("nqd,de,nqe->n", design, solve, curved)
        free = 1.0 - np.clip(leverage, 0.0, _MOST_LEVERAGE)
        return cls(scores, design, curved, solve, is_level, scores / np.sqrt(free)[:, None])


def _derivatives(
    family: HazardFamily, data: SurvivalData, scale: float, linear: Tensor, shape: Tensor
) -> tuple[FloatArray, FloatArray]:
    """First, (n, q), and second derivatives, (n, q, q), of the loss of rows in predictor and shapes."""

    def at(time: FloatArray, event: FloatArray) -> tuple[FloatArray, FloatArray]:
        log_time = torch.as_tensor(np.log(time) - scale)[None, None]
        observed = torch.as_tensor(event)[None, None]
        _, slope, others = family.loss_and_gradient(log_time, observed, linear, shape)
        first = torch.stack([slope, *others], dim=-1)[0, 0].numpy()
        second = np.zeros((*first.shape, first.shape[-1]))
        for (j, k), part in family.second_derivatives(log_time, observed, linear, shape).items():
            second[:, j, k] = second[:, k, j] = part[0, 0].numpy()
        return first, second

    first, second = at(data.time, data.event.astype(np.float64))
    late = data.entry > 0
    if late.any():  # less H(entry), the loss of who leaves there without an event
        before, curvature = at(np.where(late, data.entry, data.time), np.zeros(len(data)))
        first, second = first - late[:, None] * before, second - late[:, None, None] * curvature
    return first, second


def _design(x: FloatArray, n_shape: int, linear_shapes: bool) -> tuple[FloatArray, BoolArray]:
    """Derivatives of predictor and shapes in the parameters, as `LeafParameters.flatten` has them."""
    n, p = x.shape
    ends = p + 1 + n_shape
    design = np.zeros((n, 1 + n_shape, ends + linear_shapes * n_shape * p))
    design[:, 0, :p], design[:, 0, p] = x, 1.0
    for k in range(n_shape):
        design[:, 1 + k, p + 1 + k] = 1.0
        if linear_shapes:
            design[:, 1 + k, ends + k * p : ends + (k + 1) * p] = x
    place = np.arange(design.shape[-1])
    return design, (place >= p) & (place < ends)


def _inner(left: FloatArray, right: FloatArray) -> FloatArray:
    """Sum over rows and numbers, (n, q, d) twice -> (d, d)."""
    d = left.shape[-1]
    return np.asarray(left.reshape(-1, d).T @ right.reshape(-1, d))


def _inverse_root(matrix: FloatArray) -> FloatArray:
    """R with R R' the pseudo-inverse of a symmetric matrix (d, d), zero where that is not positive."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > _RANK * max(float(values[-1]), np.finfo(np.float64).tiny)
    return np.asarray(vectors * np.where(kept, 1 / np.sqrt(np.where(kept, values, 1.0)), 0.0))


# ---------------------------------------------------------------------- columns


class _Column(NamedTuple):
    """The rows in the order of a column, cut into sections that a split does not part.

    Attributes:
        order: (n,).
        ends: of the sections in this order, (K,), the last is n.
        cuts: values between the sections, (K - 1,); empty for categories.
        is_ordered: whether a split parts the sections before from those after; else each is a group.
    """

    order: IntArray
    ends: IntArray
    cuts: FloatArray
    is_ordered: bool

    @classmethod
    def of(cls, tree: FittedTree, values: pd.Series, trim: float) -> _Column | None:
        """A column as the gates have it, numbers that are missing filled; None if no split is possible."""
        preprocessor, n, name = tree.preprocessor, len(values), str(values.name)
        if name in preprocessor.schema.categories:
            # Missing ones are a category.
            codes = pd.factorize(labels(values), use_na_sentinel=False)[0]
            order = np.argsort(codes, kind="stable")
            ends = np.cumsum(np.bincount(codes))
            return cls(order, ends, np.empty(0), False) if len(ends) > 1 else None
        numbers = values.fillna(preprocessor.fill_[name]).to_numpy(dtype=np.float64)
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        ends = np.flatnonzero(np.diff(ordered) > 0) + 1
        ends = ends[(ends >= trim * n) & (ends <= n - trim * n)]
        if len(ends) > _MOST_SPLITS:
            ends = ends[np.linspace(0, len(ends) - 1, _MOST_SPLITS).round().astype(np.int64)]
        cuts = ordered[ends - 1] + (ordered[ends] - ordered[ends - 1]) / 2
        return cls(order, np.append(ends, n), cuts, True) if len(ends) else None


def _statistics(
    scores: _Scores, column: _Column, whitening: FloatArray, signs: npt.NDArray[np.int8]
) -> tuple[FloatArray, float]:
    """Statistic of a column for each set of signs (F, n), and the cut at which the first reaches it.

    ``whitening`` (d, r) makes the r parameters that are tested uncorrelated, of variance one.
    """
    sections = np.split(column.order, column.ends[:-1])
    # Maxima over the splits of a number hold their level without the correction for leverage, with which they
    # are conservative. The first set of signs flips nothing.
    turned = scores.effective if column.is_ordered else scores.flipped
    white, observed = turned @ whitening, scores.effective @ whitening
    # Of each section, what estimating the parameters anew takes off its scores: (d, K, r), for sums (d,).
    taken = np.stack(
        [scores.solve @ _inner(scores.design[rows], scores.curved[rows]) @ whitening for rows in sections],
        axis=1,
    )
    squares = np.empty((len(signs), len(sections) - column.is_ordered))
    step = at_once(max(taken[0].size, len(column.order)), _ELEMENTS)
    for first in range(0, len(signs), step):
        flips = signs[first : first + step].astype(np.float64)
        process = np.stack([flips[:, rows] @ white[rows] for rows in sections], axis=1)
        total = flips @ turned
        if first == 0:
            process[0] = [observed[rows].sum(axis=0) for rows in sections]
            total[0] = scores.effective.sum(axis=0)
        process -= np.tensordot(total, taken, axes=1)
        if column.is_ordered:
            process = process.cumsum(axis=1)[:, :-1]
        squares[first : first + step] = (process**2).sum(axis=-1)
    n, ends = len(column.order), column.ends[:-1]
    mean = squares.mean(axis=0)
    known = mean > _ROUNDING * n
    if whitening.shape[1] < len(whitening):
        variance = ends * (n - ends) / n if column.is_ordered else np.diff(column.ends, prepend=0)
        usual = whitening.shape[1] * variance
    else:
        # The published unit is the mean if features do not depend on the column. If it has a slope itself,
        # its process is tied down in between, and changes there would hide behind those at the ends. Of the
        # level alone so little is left there that errors of second order would count: 9 % false alarms.
        usual = mean
    squares = np.where(known, squares / np.where(known, usual, 1.0), 0.0)
    if not column.is_ordered:
        return squares.mean(axis=1), np.nan
    return squares.max(axis=1), float(column.cuts[squares[0].argmax()])
