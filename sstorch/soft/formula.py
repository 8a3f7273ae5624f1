"""A fitted tree as code and pages need it: a formula of a subject's columns, and what one reads of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add, or_

import numpy as np
from scipy.linalg import block_diag

from sstorch._types import FloatArray
from sstorch.data import Preprocessor
from sstorch.deploy.calculator import Field, PageNode
from sstorch.deploy.exports import Counts, Deployed
from sstorch.deploy.expression import (
    TIME,
    Expression,
    Formula,
    Hazards,
    as_expression,
    is_category,
    known,
    let,
    maximum,
    minimum,
    number,
    pick,
    unary,
    where,
)
from sstorch.deploy.tracing import trace
from sstorch.exceptions import ConfigError
from sstorch.fitted.incidence import DOUBLING, PLACES, WEIGHTS, WIDTH
from sstorch.fitted.tree import FittedTree
from sstorch.nn import SoftTree
from sstorch.nn.hazards.numeric import log_time_limit
from sstorch.reading.nodes import Reading

# Terms of a rule that the page writes out.
_PAGE_TERMS = 4
# Terms from which a sum is written in halves: nested as often as there are terms it is too deep to compile.
_LONG_SUM = 100


def tree_formula(tree: FittedTree) -> Formula:
    """Group and S(t) of a patient, or the hazard of each cause, with preprocessing, in double precision."""
    if tree.prediction == "mixture":
        raise ConfigError(
            "code computes one leaf per row, got prediction='mixture': use export_program, or keep the model "
            "with save()"
        )
    module, preprocessor = tree.module, tree.preprocessor
    if tree.competing and (preprocessor.offset is not None or preprocessor.strata is not None):
        raise ConfigError("code of competing causes has no offset or strata: keep the model with save()")
    functions, n_leaves = _functions(preprocessor), len(module.topology.leaves)
    gates, seen = module.gate_parameters(), slice(module.n_gate_features)
    weights, biases = (part.detach().cpu().double().numpy() for part in (gates.weight, gates.bias))
    scores = [
        let(f"score_{node}", functions.score(weights[k : k + 1], biases[k : k + 1], as_expression(0), seen))
        for k, node in enumerate(module.topology.branches)
    ]

    def below(node: int) -> Expression:
        if node >= n_leaves:
            return as_expression(node - n_leaves)
        return where(scores[node - 1] >= 0.0, below(2 * node), below(2 * node + 1))

    leaf = let("leaf", below(1))
    columns = {name: preprocessor.schema.categories.get(name) for name in preprocessor.schema.columns}
    group, fixed = let("group_number", pick(leaf, tree.group_numbers.tolist())), _fixed_known(preprocessor)
    causes = {
        name: _leaf_curves(each, functions, leaf, f"{name}_" if tree.competing else "")
        for name, each in tree.hazards.items()
    }
    parts = [curves("cumulative_hazard") for curves in causes.values()]
    if tree.competing:
        parts = [let(f"{name}_cumulative_hazard", part) for name, part in zip(causes, parts, strict=True)]
    cumulative = let("cumulative_hazard", _where_all(fixed, reduce(add, parts)))
    survival = let("survival", _where_all(fixed, where(TIME <= 0.0, 1.0, unary("exp", -cumulative))))
    divided = {k: score >= 0.0 for k, score in enumerate(scores)}
    formula = Formula(columns, group, survival, gates=divided, cumulative=cumulative)
    if not tree.competing:
        return formula
    rule = tuple(zip(PLACES.tolist(), WEIGHTS.tolist(), strict=True))
    edges, doubling = tuple(tree.panels.tolist()), tuple(DOUBLING.tolist())
    # Per original unit of time.
    log_hazards = {
        name: curves("log_hazard") - float(tree.hazards[name].log_time_scale)
        for name, curves in causes.items()
    }
    return replace(formula, hazards=Hazards(log_hazards, cumulative, edges, WIDTH, rule, doubling))


def _leaf_curves(
    module: SoftTree, functions: _Functions, leaf: Expression, prefix: str
) -> Callable[[str], Expression]:
    """Curves of the family by name, with the parameters of a leaf."""
    family, leaves = module.family, module.leaf_parameters()
    slope, intercept, shape, shape_slope = (
        part.detach().cpu().double().numpy()
        for part in (leaves.slope, leaves.intercept, leaves.shape, leaves.shape_slope)
    )
    n = functions.mixing.shape[1]
    seen = slice(n - module.in_features, n)
    predictor = let(f"{prefix}linear_predictor", functions.score(slope, intercept, leaf, seen, prefix))
    shapes = [
        let(
            prefix + name,
            functions.score(shape_slope[:, k], shape[:, k], leaf, seen, f"{prefix}{name}_")
            if shape_slope.shape[-2]
            else pick(leaf, shape[:, k].tolist()),
        )
        for k, name in enumerate(family.shape_names)
    ]
    scale, limit = float(module.log_time_scale), log_time_limit(module.log_time_scale.dtype)
    log_time = unary("log", maximum(TIME, float(np.finfo(np.float64).tiny))) - scale
    log_time = let("log_time", minimum(maximum(log_time, -limit), limit))
    arguments = [np.empty(len(each), dtype=object) for each in ([log_time], [predictor], shapes)]
    for array, each in zip(arguments, ([log_time], [predictor], shapes), strict=True):
        array[:] = each

    def traced(name: str) -> Expression:
        curve, (y, g, s) = getattr(family, name), arguments
        (out,) = trace(lambda y, g, s: curve(y, g, s), y, g, s[None], what=f"{family.name} leaves").ravel()
        return as_expression(out)

    return traced


@dataclass(frozen=True)
class _Functions:
    """Terms of linear scores: 1, columns, categories and curves."""

    parts: list[Expression]  # the functions
    columns: list[str]  # the column of each, two of a product, none of 1
    mixing: FloatArray  # the features of gates and leaves as combinations of them, (functions, features)

    def score(
        self, weights: FloatArray, bias: FloatArray, leaf: Expression, features: slice, prefix: str = ""
    ) -> Expression:
        """A linear score of some of the features, by weights (L, features) and bias (L,) of a leaf."""
        mixed = self.mixing[:, features] @ weights.T
        one = as_expression(1.0)
        terms = [(one, pick(leaf, (mixed[0] + bias).tolist()))]
        places: dict[str, list[int]] = {}
        for k, column in enumerate(self.columns[1:], 1):
            places.setdefault(column, []).append(k)
        for column, those in places.items():
            own = [(pick(leaf, mixed[k].tolist()), self.parts[k]) for k in those if mixed[k].any()]
            terms += own if len(own) < 2 else [(one, let(f"{prefix}{column}_effect", _sum(own)))]
        return _sum(terms)


def _sum(terms: Sequence[tuple[Expression, Expression]]) -> Expression:
    """Weights times parts, without those that are zero."""
    if len(terms) > _LONG_SUM:
        middle = len(terms) // 2
        return _sum(terms[:middle]) + _sum(terms[middle:])
    total = as_expression(0.0)
    for weight, part in terms:
        if weight.is_number(0) or part.is_number(0):
            continue
        if weight.is_constant and weight.constant < 0 and not total.is_number(0):
            total = total - as_expression(-weight.constant) * part
        else:
            total = total + weight * part
    return total


def _where_all(conditions: Sequence[Expression], value: Expression) -> Expression:
    """The value where all conditions hold, else NaN."""
    for condition in conditions:
        value = where(condition, value, np.nan)
    return value


def _fixed_known(preprocessor: Preprocessor) -> list[Expression]:
    """Whether the offset has a value, and the stratum is one of the training rows; without them nothing."""
    found = [] if preprocessor.offset is None else [known(preprocessor.offset)]
    origins = zip(preprocessor.schema.origins, preprocessor.scale_, strict=True)
    strata = [
        is_category(column, word)
        for (column, word), scale in origins
        if column == preprocessor.strata and word is not None and scale
    ]
    return [*found, reduce(or_, strata)] if strata else found


def _functions(preprocessor: Preprocessor) -> _Functions:
    """From raw columns: missing values filled, scaled, curves."""
    schema, scaled, columns = preprocessor.schema, [], [""]
    for (column, category), offset, scale in zip(
        schema.origins, preprocessor.offset_.tolist(), preprocessor.scale_.tolist(), strict=True
    ):
        columns.append(column)
        if not scale:
            scaled.append(as_expression(0.0))
        elif category is None:
            scaled.append((let(column, number(column, preprocessor.fill_[column])) - offset) * scale)
        else:
            scaled.append(where(is_category(column, category), 1.0, 0.0))
    basis = preprocessor.basis_
    if basis is None:
        parts = [as_expression(1.0), *scaled]
        return _Functions(parts, columns, np.eye(len(parts))[:, 1:])
    names, base = columns[1:], scaled
    for j, scale in zip(basis.log_column, basis.log_scale.tolist(), strict=True):
        z = scaled[j]
        logarithm = unary("log1p", maximum(z, 0.0) / scale) + minimum(z, 0.0) / scale
        base.append(let(f"log_{names[j]}", logarithm))
        names.append(names[j])
    parts, columns = [as_expression(1.0), *base], ["", *names]
    for j, knot in zip(basis.hinge_column, basis.hinge_knot.tolist(), strict=True):
        parts.append(maximum(base[j] - knot, 0.0))
        columns.append(names[j])
    ends = zip(basis.cube_column, basis.cube_knot.tolist(), basis.cube_end.tolist(), strict=True)
    for j, knot, end in ends:
        side = maximum(minimum(base[j], end) - knot, 0.0)
        parts.append(side * side * side)
        columns.append(names[j])
    away = [z - center for z, center in zip(base, basis.center.tolist(), strict=True)]
    for i, j in zip(basis.first, basis.second, strict=True):
        parts.append(away[i] * away[j])
        columns.append(f"{names[i]}_by_{names[j]}")
    return _Functions(parts, columns, block_diag(basis.mixing, np.diag(basis.factor)))


def page_nodes(tree: FittedTree, reading: Reading) -> list[PageNode]:
    """The nodes by heap number, the root first."""
    branches, shown = tree.module.topology.branches, []
    for node in range(1, 2 * len(branches) + 2):
        rule = reading.rules[node // 2].text(_PAGE_TERMS, right=bool(node % 2)) if node > 1 else ""
        if node <= len(branches):
            shown.append(PageNode(rule, (2 * node - 1, 2 * node)))
        else:
            shown.append(PageNode(rule, (), int(tree.group_numbers[node - len(branches) - 1])))
    return shown


def deployed(tree: FittedTree, reading: Reading, medians: bool) -> Deployed:
    """Contents of the page for a tree: all nodes, with or without the predicted median of groups."""
    topology, preprocessor = tree.module.topology, tree.preprocessor
    numbers = dict(zip(topology.leaves, tree.group_numbers.tolist(), strict=True))

    def counts(node: int, median: bool) -> Counts:
        row = reading.nodes.loc[node].to_dict()
        names = {cause: f"events {cause}" for cause in tree.causes} if tree.competing else {"": "events"}
        events = {cause: int(row[name]) for cause, name in names.items()}
        return Counts(int(row["rows"]), events, reached[numbers[node]] if median else None)

    reached = reading.groups["median", "model"].groupby(level="group").first().to_dict()
    none = Counts(0, {})
    groups = {
        number: counts(leaf, medians) if leaf in reading.leaves else none for leaf, number in numbers.items()
    }
    fields = []
    for name in preprocessor.schema.columns:
        words = preprocessor.schema.categories.get(name)
        if words is not None:
            fields.append(Field(name, name, None, tuple(words), typical=preprocessor.mode_[name]))
            continue
        j = preprocessor.schema.origins.index((name, None))
        low, scale, fill = preprocessor.offset_[j], preprocessor.scale_[j], preprocessor.fill_[name]
        ranged = scale > 0 and name != preprocessor.offset
        low, high = (float(low), float(low + 1 / scale)) if ranged else (None, None)
        fields.append(Field(name, name, low=low, high=high, typical=fill))
    families = " / ".join(dict.fromkeys(module.family.name for module in tree.hazards.values()))
    model = "Competing risks" if tree.competing else "Soft survival" if topology.depth else "Survival"
    kind = f"{model} regression with {families} hazards"
    if topology.depth:
        kind = f"{model} tree of depth {topology.depth} with {families} leaves"
    return Deployed(
        kind,
        counts(1, False),
        fields,
        page_nodes(tree, reading),
        dict(sorted(groups.items())),
        tree.time_unit,
        beyond="beyond it curves are extrapolated",
        missing="numbers: mean; categories: zeros",
    )
