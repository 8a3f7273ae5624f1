"""Parameter objects of the soft estimators: penalties, and encodings of the columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, Self

from sstorch.base import Parameters
from sstorch.data.encodings import NumericEncodings
from sstorch.exceptions import ConfigError
from sstorch.objective import L2Parity, Penalty
from sstorch.soft.settings import ESTIMATED, Coefficient


@dataclass(repr=False)
class Penalties(Parameters):
    """Penalties of a regression; trees have additional ones.

    By default they are estimated. Coefficients of one kind (lines, curves, categories, interactions; levels,
    slopes and shapes of groups) have normal priors with a common variance. The variances maximise the
    evidence, the likelihood with the coefficients integrated out. Linear effects are in standard deviations
    of the column, curves are scaled to variance one.

    Attributes:
        ridge: ``"estimated"``, or the coefficient >= 0 of (1/2) ||gamma||^2 over the slopes, with columns on
            [0, 1], added to the mean loss per row.
        roughness: ``"estimated"``, or, if ``ridge`` is a number, the coefficient >= 0 of (1/2) sum of squared
            changes of slope (``"piecewise"``) or of the integral of the squared second derivative (splines)
            of each curve, with columns in units of their standard deviations. If ``ridge`` is a number,
            ``"estimated"`` means the larger of it and 1e-2.
        fairness: penalty on differences between the survival curves of sensitive groups: None, ``"l2"``
            (leaves only), ``"l2_relaxed"`` (leaves and gates), or settings such as
            ``L2Parity(gates="relaxed")``. ``fit`` then needs the groups (``sensitive=``).
        rho: coefficient of ``fairness``, in nats per unit of time. It multiplies the integral of (S_i(t) -
            S_j(t))^2 over the observed times, averaged over pairs of subjects from different groups.
        own: custom penalties, each a :class:`sstorch.objective.LeafPenalty`,
            :class:`sstorch.objective.GatePenalty` or :class:`sstorch.objective.RowPenalty`; used in all
            folds, starts and resamples.
    """

    ridge: Coefficient = ESTIMATED
    roughness: Coefficient = ESTIMATED
    fairness: str | L2Parity | None = None
    rho: float = 0.0
    own: Sequence[Penalty] = ()

    @classmethod
    def of(cls, given: Penalties) -> Self:
        """Convert penalties to this class; fields that ``given`` lacks have default values.

        Raises:
            ConfigError: ``given`` is not a penalties object, or sets fields that this class lacks.
        """
        if not isinstance(given, Penalties):
            raise ConfigError(f"penalties must be {cls.__name__}(...), got {given!r}")
        if type(given) is cls:
            return given
        changed, known = given.changed, {item.name for item in fields(cls)}
        if strange := sorted(set(changed) - known):
            raise ConfigError(f"nothing has the penalties {', '.join(strange)} here: use {cls.__name__}(...)")
        return cls(**changed)


@dataclass(repr=False)
class GroupPenalties(Penalties):
    """Penalties of a tree with distilled gates.

    Levels, slopes and shapes of groups have estimated variances. If ``ridge`` is a number, every group has
    slopes of its own with this ridge, and free levels and shapes.

    Attributes:
        gate_charge: minimum gain in evidence over the regression for each gate, in nats, >= 0. It accounts
            for the selection of the gate on the same rows.
    """

    gate_charge: float = 4.0


@dataclass(repr=False)
class GatePenalties(GroupPenalties):
    """Penalties of a tree with gates trained on the outcomes.

    Weights of a gate that is estimated with its leaves have an estimated variance around zero, with a
    trainer, too; ``gate_ridge`` is for other gates that a trainer trains, between hazards that differ.

    Attributes:
        gate_ridge: coefficient of (1/2) ||w||^2 over the weights of the gates, with columns on [0, 1].
    """

    gate_ridge: float = 1e-3


@dataclass(repr=False)
class Columns(Parameters):
    """Encodings of the columns in leaves and gates.

    Attributes:
        numeric: effects of numeric columns in the leaves. ``"auto"``: ``"smooth"``, or ``"linear"`` with many
            columns (at least 100 and half as many as rows, or at least 500). ``"linear"``: a straight line.
            ``"log"``: the logarithm of right-skewed columns (skewness above 1.5). ``"smooth"``: natural cubic
            splines of these logarithms and of the other columns, from seven distinct values on. ``"spline"``:
            natural cubic splines. ``"piecewise"``: piecewise linear with breaks at quantiles. Options:
            ``"piecewise(8)"`` (pieces), ``"smooth(6)"`` and ``"spline(6)"`` (degrees of freedom). A
            dictionary sets them by column; other columns are linear. Knots come from the training rows. A
            curve is a straight line beyond its outermost knots; a column with fewer than five distinct values
            is not transformed.
        gate_numeric: encoding of numeric columns in the gates; with ``"linear"`` rules are in original units.
        interactions: pairs of columns, such as ``[("age", "sex")]``, or ``"all"`` pairs (at most 5,000), with
            products as additional features of the leaves. Factors are indicators of categories and centred
            numbers, or centred logarithms if ``numeric`` uses these.
        monotone: columns with a non-decreasing (``"up"``) or non-increasing (``"down"``) effect on risk in
            every leaf, such as ``{"nodes": "up"}``; not supported for splines.
        offset: numeric column added to the linear predictor with coefficient one, on the scale of the family
            (log hazard, log odds or log time), such as a log exposure. Missing values are not allowed. Only
            for :class:`~sstorch.SurvivalRegression`.
        strata: categorical column with at most 16 categories. Each category has a separate baseline (level
            and shapes); effects are shared. With estimated penalties, shapes vary around a common shape with
            an estimated variance; with fixed penalties they are not penalised. Errors: a category without an
            event, and at prediction a category without training rows. Only for
            :class:`~sstorch.SurvivalRegression`.
    """

    numeric: NumericEncodings = "auto"
    gate_numeric: NumericEncodings = "linear"
    interactions: Sequence[tuple[str, str]] | Literal["all"] = ()
    monotone: Mapping[str, str] | None = None
    offset: str | None = None
    strata: str | None = None


# Defaults in signatures; an estimator copies them before it changes one.
PENALTIES, GROUP_PENALTIES, GATE_PENALTIES = Penalties(), GroupPenalties(), GatePenalties()
CURVED = Columns()
