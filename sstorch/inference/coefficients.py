"""Tables of coefficients and terms, with standard errors, confidence limits and p-values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import chi2, norm
from torch import Tensor

from sstorch._types import FloatArray
from sstorch.checks import check_share
from sstorch.exceptions import ConfigError
from sstorch.inference.contrasts import Contrast, Contrasts, Values
from sstorch.inference.covariance import HazardCovariance, Inferable, LeafFeatures, covariance_of
from sstorch.metrics.checks import half_width
from sstorch.metrics.weights import rank_test
from sstorch.nn import SoftTree
from sstorch.threads import torch_threads

# Eigenvalues below this share of the largest are none.
_SMALL = 1e-12
# Points of the integrals over an angle, periodic, and over a chi-squared variable.
_ANGLES, _NODES = 64, 200


@dataclass(frozen=True)
class Hazard:
    """A hazard of one cause, which several prognostic groups may share: tables of contrasts."""

    cause: str
    groups: str  # prognostic groups that have it, as text such as ``"1, 2"``
    module: SoftTree
    covariance: HazardCovariance
    parameters: Tensor  # slopes (p,), intercept, shapes ..., (d,)
    map: Tensor  # the same as combinations of the coefficients, (d, D)
    robust: bool  # whether the covariance is a sandwich

    @classmethod
    def of_model(cls, model: Inferable) -> Iterator[Hazard]:
        """Create those of all causes and groups of a fitted model."""
        tree, covariance = model._tree, covariance_of(model)
        for name, module in tree.hazards.items():
            own = covariance.hazards[name]
            parameters = module.leaf_parameters().flatten().detach().cpu().double()
            for group in own.groups.unique().tolist():
                places = (own.groups == group).nonzero()[:, 0]
                groups = ", ".join(str(k) for k in sorted(tree.group_numbers[places.numpy()].tolist()))
                robust = covariance.kind == "sandwich"
                yield cls(name, groups, module, own, parameters[places[0]], own.map[group], robust)

    def table(self, contrasts: Sequence[Contrast], level: float) -> pd.DataFrame:
        """Estimates by term and contrast, with limits of the ratio, if the family has one."""
        names, ratio = [(each.term, each.text) for each in contrasts], self.module.family.constant_ratio
        return self._table(names, *self.combined(contrasts), level, ratio)

    def combined(self, contrasts: Sequence[Contrast]) -> tuple[Tensor, Tensor]:
        """Values of contrasts, (n,), and the contrasts as combinations of the coefficients, (n, D)."""
        p = self.module.in_features
        features = torch.stack([self.map.new_zeros(p), *(each.features for each in contrasts)])[1:]
        return features @ self.parameters[:p], features @ self.map[:p]

    def _table(
        self,
        names: Sequence[tuple[str, str]],
        values: Tensor,
        combined: Tensor,
        level: float,
        ratio: str | None = None,
    ) -> pd.DataFrame:
        """Values (n,) that are combinations (n, D) of the coefficients; NaN errors where unknown."""
        table = pd.DataFrame(
            {"estimate": values.tolist(), "standard error": self.covariance.errors(combined).tolist()},
            index=pd.MultiIndex.from_tuples(names, names=["term", "contrast"]) if names else None,
        )
        width = half_width(level) * table["standard error"]
        ends = {"lower": table["estimate"] - width, "upper": table["estimate"] + width}
        if ratio is not None:
            with np.errstate(over="ignore"):  # where the estimate is infinite, so is its upper limit
                ends = {name: np.exp(end) for name, end in ({ratio: table["estimate"]} | ends).items()}
        known = table["standard error"] > 0
        z = (table["estimate"] / table["standard error"].where(known)).abs()
        return table.assign(**ends, p=2 * norm.sf(z))

    def baseline(self, contrasts: Contrasts, level: float) -> list[pd.DataFrame]:
        """Intercept and shapes where they have a meaning in original units, by stratum, else none."""
        family = self.module.family
        if family.ratio != "time ratio" or family.ancillary == "linear" or contrasts.curves:
            return []
        numbers = {name: 0.0 for name, usual in contrasts.reference.items() if isinstance(usual, float)}
        x = contrasts.encoded([numbers | each for each in contrasts.baselines.values()])
        names = family.shape_names
        parts = torch.cat([self.map, self.parameters[:, None]], 1)  # combinations, and values
        rows = LeafFeatures(x, len(parts), len(names)).combined(parts)
        rows[:, 0, -1] += float(self.module.log_time_scale)
        return [
            self._table([(name, text) for name in ("Intercept", *names)], row[:, -1], row[:, :-1], level)
            for text, row in zip(contrasts.baselines, rows, strict=True)
        ]

    def test(self, places: Sequence[int], contrasts: Sequence[Contrast]) -> dict[str, float]:
        """Degrees of freedom, statistic and p-value of the identified part of a term, or its contrasts."""
        hazard, own = self.covariance, torch.tensor(places)
        own = own[self.map[own].any(-1)] + 1  # the others did not vary in the training rows
        basis = hazard.identified(torch.eye(len(hazard.theta), dtype=torch.float64)[own])

        def projected(matrix: Tensor) -> Tensor:
            return basis @ matrix[own[:, None], own] @ basis.mT

        share = hazard.posterior @ hazard.information
        edf, twice = (float(projected(part).trace()) for part in (share, share @ share))
        reference = min(max(2 * edf - twice, 1e-3), len(basis))
        statistic = p = np.nan
        if len(basis):
            # The test takes penalties as known, as its reference does; information is at any intercept.
            known = hazard.covariance if self.robust else hazard.posterior
            found, side = hazard.information, hazard.information[:, 0]
            spread = projected(found - side[:, None] * side / found[0, 0])
            theta, covariance = basis @ hazard.theta[own], projected(known)
            statistic, p = term_test(theta.numpy(), covariance.numpy(), spread.numpy(), reference)
        elif contrasts:
            values, combined = self.combined(contrasts)
            basis = hazard.identified(combined)
            combined = basis @ combined
            spread = combined @ hazard.covariance @ combined.mT
            statistic, edf, p = rank_test((basis @ values).numpy(), spread.numpy())
            reference, p = edf, p if edf else np.nan
        return {"edf": edf, "reference df": reference, "statistic": statistic, "p": p}


@torch_threads(1)  # a second one gains nothing on small matrices
def coefficients(model: Inferable, level: float = 0.95) -> pd.DataFrame:
    """Coefficients with standard errors, confidence limits and p-values.

    Every row is a difference of the linear predictor: per unit for a linear effect, compared with the most
    frequent category for a category, the change of one effect per unit of the other column for a product. A
    curve has no single coefficient: its row compares the 95 % with the 5 % quantile of the training rows.
    Other columns are at their reference, the median or the most frequent category. Terms are ordered by the
    size of these differences.

    Coefficients of groups are conditional on the gates, which were placed by the same rows: standard errors
    of differences between groups are too small.

    Args:
        model: fitted regression or groups.
        level: level of the confidence limits.

    Returns:
        Indexed by ``term`` and ``contrast``, and before them by ``cause`` with competing causes, and by
        ``groups``, text such as ``"1, 2"``, where not all prognostic groups have the same hazard:
        ``estimate``, ``standard error``, the ratio (``hazard ratio``, ``time ratio`` or ``odds ratio``),
        ``lower`` and ``upper``, confidence limits of the ratio, or of the estimate where the family has none,
        and ``p`` of the Wald test. Families of time ratios without curves also have ``Intercept`` and shapes,
        per stratum if there are strata, with limits of the estimate. A standard error is NaN if the training
        rows do not determine the difference.

    Raises:
        ConfigError: the model has no covariance, or ``level`` is out of range.
    """
    check_share(level, "level")
    facts = covariance_of(model).terms
    contrasts, found = Contrasts(model._tree.preprocessor, facts), {}
    rows, plain = contrasts.rows(list(facts)), [term for term in facts if term not in contrasts.products]
    outer = [each for term in plain for each in contrasts.between(term, contrasts.outer(term))]
    for hazard in Hazard.of_model(model):
        size = hazard.table(outer, level)["estimate"].abs().groupby(level="term").max()
        table = hazard.table(rows, level)
        order = size.reindex(table.index.get_level_values("term"), fill_value=0.0).to_numpy()
        table = table.iloc[np.argsort(-order, kind="stable")]
        found[hazard.cause, hazard.groups] = pd.concat([table, *hazard.baseline(contrasts, level)])
    return _indexed(found, model)


@torch_threads(1)
def terms(model: Inferable, level: float = 0.95) -> pd.DataFrame:
    """Test each column and product as a whole, with effective degrees of freedom and a contrast.

    Returns:
        Indexed by ``term``, preceded by ``cause`` and ``groups`` as in :func:`coefficients`, in order of
        ``change``: ``kind``; ``edf``, effective degrees of freedom of shared effects; ``statistic`` and ``p``
        of a Wald test that the term is zero, with ``reference df`` (for a penalised term between edf and the
        number of features, usually not an integer); ``contrast``, the compared values: 95 % and 5 % quantile,
        or the two categories with the largest difference; ``change``, the absolute difference of the linear
        predictor, and its ratio with ``lower`` and ``upper``. Tests treat estimated penalties as fixed.
        Without penalties both degrees of freedom are the rank of the features given the others; if it is 0,
        as for two equal columns, the p-value is NaN.

    Args:
        model: fitted regression or groups.
        level: level of the confidence limits.

    Raises:
        ConfigError: the model has no covariance, or ``level`` is out of range.
    """
    check_share(level, "level")
    facts = covariance_of(model).terms
    contrasts, found = Contrasts(model._tree.preprocessor, facts), {}
    for hazard in Hazard.of_model(model):
        lines = {}
        for term in facts:
            own = contrasts.rows([term])
            test = hazard.test(facts[term].places, own if term in contrasts.factors else [])
            pairs = [] if term in contrasts.products else contrasts.outer(term)
            if contrasts.kind(term) == "category":  # the most different one is shown
                words = [str(contrasts.reference[term]), *contrasts.levels(term)]
                pairs = [Values.of(*pair) for pair in combinations(words, 2)]
            rows = own if term in contrasts.products else contrasts.between(term, pairs)
            table = hazard.table(rows, level).drop(columns=["standard error", "p"])
            best: dict[str, Any] = {"contrast": "", "change": np.nan}
            if rows:
                place = int(table["estimate"].abs().argmax())
                best = {"contrast": rows[place].text, "change": abs(table["estimate"].iloc[place])}
                best |= {str(name): number for name, number in table.iloc[place].items()}
            lines[term] = {"kind": contrasts.kind(term), **test, **best}
        table = pd.DataFrame.from_dict(lines, orient="index").rename_axis("term")
        ratio = hazard.module.family.constant_ratio
        table = table.drop(columns="estimate", errors="ignore") if ratio is not None else table
        found[hazard.cause, hazard.groups] = table.sort_values("change", ascending=False, kind="stable")
    return _indexed(found, model)


@torch_threads(1)
def effect(model: Inferable, column: str, value: object, reference: object, level: float = 0.95) -> pd.Series:
    """Estimate the contrast between two values of a covariate, all other covariates equal.

    Args:
        model: fitted regression for one event; for several causes or groups see :func:`coefficients`.
        column: the covariate.
        value: value of the covariate.
        reference: reference value of the covariate.
        level: level of the confidence limits.

    Returns:
        A row of :func:`coefficients`; its name is the contrast.

    Raises:
        ConfigError: the model has no covariance, or several causes or groups.
        DataError: unknown column or value.

    >>> from sstorch import SurvivalRegression, load_dataset
    >>> data = load_dataset("gbsg2")
    >>> found = effect(SurvivalRegression().fit(data.frame, data.y), "pnodes", 10, 1)
    >>> found[["odds ratio", "lower", "upper"]].round(2).tolist()
    [4.1, 2.62, 6.41]
    """
    check_share(level, "level")
    facts, (hazard, *others) = covariance_of(model).terms, Hazard.of_model(model)
    if others:
        raise ConfigError("effect() needs one hazard: see coefficients(), which has all causes and groups")
    contrasts = Contrasts(model._tree.preprocessor, facts)
    pair = Values.of(contrasts.checked(column, reference), contrasts.checked(column, value))
    table = hazard.table(contrasts.between(column, [pair]), level)
    return table.iloc[0].rename(f"{column} {pair.text}")


def _indexed(tables: Mapping[tuple[str, str], pd.DataFrame], model: Inferable) -> pd.DataFrame:
    """Tables by cause and groups as one, without levels of one value."""
    table = pd.concat(tables, names=["cause", "groups"])
    table = table if len(tables) > len(model._tree.causes) else table.droplevel("groups")
    table = table if model._tree.competing else table.droplevel("cause")
    ratios = [name for name in table if str(name).endswith(" ratio")]
    others = [name for name in table if name not in ratios]
    at = others.index("lower")
    return table[[*others[:at], *ratios, *others[at:]]]


def term_test(
    coefficients: FloatArray, covariance: FloatArray, spread: FloatArray, freedom: float
) -> tuple[float, float]:
    """Statistic and p-value: a penalised term is zero (Wood, 2013, Biometrika 100, 221-228)."""
    # By the covariance of coefficients and the `spread` of features, (k, k). The pseudo-inverse has rank
    # `freedom` > 0: the last whole one and the part share a block of two.
    values, vectors = np.linalg.eigh(spread)
    good = values > _SMALL * max(values[-1], 0.0)
    root = (vectors[:, good] * np.sqrt(values[good])).T  # of the term's values, an orthogonal basis
    moved = root @ coefficients
    variances, axes = np.linalg.eigh(root @ covariance @ root.T)
    order = np.argsort(-variances)
    variances, axes = variances[order], axes[:, order]
    variances = variances[variances > variances[0] * _SMALL]
    rank = min(freedom, float(len(variances)))
    whole = int(np.floor(rank))
    part = rank - whole
    if part < 1e-9 or whole == len(variances):
        part = 0.0
    along = (axes.T @ moved)[: len(variances)]
    if whole == 0 or part == 0.0:
        count = max(whole, 1)
        statistic = float((along[:count] ** 2 / variances[:count]).sum())
        return statistic, float(chi2.sf(statistic, count))
    share = np.sqrt(part * (1 - part) / 2)
    scale = variances[whole - 1 : whole + 1] ** -0.5
    block = scale[:, None] * np.array([[1.0, share], [share, part]]) * scale
    own, turned = np.linalg.eigh(block)
    half = turned * np.sqrt(own) @ turned.T
    first = float((along[: whole - 1] ** 2 / variances[: whole - 1]).sum())
    # The signs of the two axes are arbitrary, and the form depends on them: both are taken.
    forms = [
        first + float(np.sum((half @ (along[whole - 1 : whole + 1] * [1.0, sign])) ** 2)) for sign in (1, -1)
    ]
    upper = (part + 1 + np.sqrt(1 - part**2)) / 2
    weights = upper, part + 1 - upper
    return float(np.mean(forms)), float(np.mean([chi2_tail(each, whole - 1, weights) for each in forms]))


def chi2_tail(value: float, whole: int, weights: tuple[float, float]) -> float:
    """Probability that a sum of chi-squared variables exceeds a value > 0, precise in the tail."""
    # One has `whole` degrees of freedom, two have one each, and weights: in polar form an exponential.
    angle = (np.arange(_ANGLES) + 0.5) * np.pi / _ANGLES
    c = weights[0] * np.cos(angle) ** 2 + weights[1] * np.sin(angle) ** 2
    if whole == 0:
        return float(np.exp(-value / (2 * c)).mean())
    u, width = np.polynomial.legendre.leggauss(_NODES)
    u, width = (u + 1) / 2, width / 2
    density = 2 * value * u * chi2.pdf(value * u**2, whole) * width
    rest = np.exp(-value * (1 - u[:, None] ** 2) / (2 * c)).mean(1)
    return float(chi2.sf(value, whole) + density @ rest)
