"""Parameters of the soft estimators that belong together: penalties, and what becomes of the columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

from sstorch.data.encodings import ColumnEncodings, NumericEncodings, parse_interactions
from sstorch.data.preprocessing import Categorical, Numeric
from sstorch.exceptions import ConfigError
from sstorch.objective import L2Parity, Penalty
from sstorch.parameters import Parameters
from sstorch.soft.setting import as_json, from_json
from sstorch.soft.settings import ESTIMATED, Coefficient, GateRidgeUnits

# What training alone reads: no part of a file.
_NOT_SAVED = ("fairness", "rho", "own")


@dataclass(repr=False)
class Penalties(Parameters):
    """Penalties on a regression; a tree has further ones.

    By default they are estimated: coefficients of one kind (lines, curves, categories, interactions; levels,
    slopes and shapes of groups) have normal priors of one variance, which maximises the evidence, the
    likelihood with the coefficients integrated out. Lines count columns in standard deviations, curves are
    scaled to variance one. Nothing is searched, and no rows are held out.

    Where a tree is given this class, its own further penalties are those by default.

    Attributes:
        ridge: ``"estimated"``, or the coefficient >= 0 of (1/2) ||gamma||^2 over the slopes, columns on
            [0, 1], against the mean loss of a row.
        roughness: ``"estimated"``, or with a ridge that is a number the coefficient >= 0 of (1/2) sum of
            squared changes of slope (``"piecewise"``), or of the integral of the squared second derivative
            (splines), of each column's curve, columns in units of their standard deviations: at infinity all
            is linear. With a number, ``"estimated"`` stands for 1e-2.
        fairness: penalty on differences between the survival curves of sensitive groups: None, ``"l2"``
            (leaves are trained with it), ``"l2_relaxed"`` (gates, too), or settings such as
            ``L2Parity(gates="relaxed")``. ``fit`` then needs the groups (``sensitive=``).
        rho: its coefficient: of the mean over pairs of subjects of different groups of the integral of
            (S_i(t) - S_j(t))^2 over the observed times, so in nats per unit of time.
        own: penalties of your own, each a :class:`sstorch.objective.LeafPenalty`,
            :class:`sstorch.objective.GatePenalty` or :class:`sstorch.objective.RowPenalty`; they act in all
            folds, starts and resamples.
    """

    ridge: Coefficient = ESTIMATED
    roughness: Coefficient = ESTIMATED
    fairness: str | L2Parity | None = None
    rho: float = 0.0
    own: Sequence[Penalty] = ()

    @classmethod
    def of(cls, given: Penalties) -> Self:
        """The penalties as this class has them; those that a base class does not have by default.

        Raises:
            ConfigError: they are no penalties, or have some that this class does not have.
        """
        if not isinstance(given, Penalties):
            raise ConfigError(f"penalties must be {cls.__name__}(...), got {given!r}")
        if type(given) is cls:
            return given
        changed, known = given.changed, {item.name for item in fields(cls)}
        if strange := sorted(set(changed) - known):
            raise ConfigError(f"nothing has the penalties {', '.join(strange)} here: use {cls.__name__}(...)")
        return cls(**changed)

    @property
    def settings(self) -> dict[str, Any]:
        """Values as the batch trainer names them."""
        values = self.get_params()
        values["own_penalties"] = values.pop("own")
        return values

    def to_dict(self) -> dict[str, Any]:
        """What is saved with a model."""
        return {name: as_json(value) for name, value in self.get_params().items() if name not in _NOT_SAVED}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_dict`."""
        return cls(**{name: from_json(value) for name, value in values.items()})


@dataclass(repr=False)
class GroupPenalties(Penalties):
    """Penalties on groups whose gates are distilled.

    Levels, slopes and shapes of groups have estimated variances, unless ``ridge`` is a number: then the last
    three coefficients act.

    Attributes:
        gate_charge: nats of evidence that each gate must gain over the regression, >= 0, since the rows that
            the evidence is of have placed it.
        fused: of (1/2) sum_n ||theta_n - mean theta||^2 over slopes and shapes. At infinity all groups have
            the same slopes, exactly, and shapes are free of it.
        offset: of (1/2) sum_n (gamma_0n - mean gamma_0)^2, on differences between the levels of the groups.
            With shared slopes the tree becomes the regression as it grows.
        fused_shape: the same of their shapes, in addition to ``fused``.
    """

    gate_charge: float = 3.0
    fused: float = math.inf
    offset: float = 0.1
    fused_shape: float = 0.01


@dataclass(repr=False)
class GatePenalties(Penalties):
    """Coefficients of the penalties on a tree whose gates are trained on the outcomes.

    Attributes:
        ridge: of (1/2) ||gamma||^2 over the slopes of the leaves.
        roughness: of the curves of numeric columns, as of :class:`Penalties`.
        gate_ridge: of (1/2) ||w||^2 over the weights of the gates.
        gate_ridge_units: of the columns that these weights are for: ``"range"``, all columns on [0, 1] as
            published, in which a column with a long tail may hardly have a say; ``"sd"``, their standard
            deviations.
        gate_sparsity: of sum_j ||w_.j||, the group lasso over the weights of each encoded feature in all
            gates: features that do not help leave the gates. Best with ``trainer="nodec+joint"``, since the
            regressions that rebalance gates in the decomposition do not know of it.
        fused: as of :class:`GroupPenalties`; infinity needs ``trainer="leaves"``.
        offset: as of :class:`GroupPenalties`.
        fused_shape: as of :class:`GroupPenalties`.
    """

    ridge: float = 1e-3
    roughness: float = 1e-2
    gate_ridge: float = 1e-3
    gate_ridge_units: GateRidgeUnits = "range"
    gate_sparsity: float = 0.0
    fused: float = 0.0
    offset: float = 0.0
    fused_shape: float = 0.0


@dataclass(repr=False)
class Columns(Parameters):
    """What leaves and gates see of the columns.

    Attributes:
        numeric: what leaves see of numeric columns: ``"auto"``, the same as ``"smooth"``, or as ``"linear"``
            where columns are many (100, and half as many as the rows, or 500); ``"linear"``, the
            columns as they are; ``"log"``, the logarithm of those that are skewed to the right (skewness
            above 1.5); ``"smooth"``, natural cubic splines of this logarithm and of the other columns, from
            seven distinct values on; ``"spline"``, natural cubic splines of the columns; ``"piecewise"``,
            broken lines with bends at quantiles; with options, ``"piecewise(8)"`` (pieces), ``"smooth(6)"``
            and ``"spline(6)"`` (degrees of freedom); or a dictionary of these by column, whose other columns
            are linear. Knots come from the training rows. Every curve goes on as a straight line beyond its
            outermost knots, and a column of fewer than five distinct values stays as it is.
        gate_numeric: what gates see of them; linear gates (``"auto"``) have rules in original units.
        interactions: pairs of columns, such as ``[("age", "sex")]``, or ``"all"`` pairs, whose products
            leaves see in addition, at most 5,000: of the indicators of categories, and of numbers, or of
            their logarithms where ``numeric`` takes these, less their means.
        monotone: columns whose effect on risk must rise, ``"up"``, or fall, ``"down"``, in every leaf, such
            as ``{"nodes": "up"}``; not for splines.
        missing_numbers: what replaces a missing number, ``"mean"`` or ``"median"`` of the training rows.
        missing_categories: what a missing category becomes, ``"zeros"`` (none of the column's categories) or
            the ``"most_frequent"`` one of the training rows.
        missing: columns whose missing values mean something, as a test that was not done: they are a level of
            their own, ``"missing"``, of a category, and of a number the value 1 of a further column
            ``"NAME missing"``, with the median in their place.
        offset: numeric column that is added to the linear predictor as it is, with the coefficient one and
            in the family's own direction (log hazard, log odds or log time), such as a log exposure. It may
            not be missing. Of :class:`~sstorch.SurvivalRegression` only.
        strata: categorical column, of at most 16 categories, each of which has a level and shapes of its
            own, a baseline, under effects that all share. Shapes of strata have an estimated variance
            around a common one where penalties are estimated, and no penalty where they are numbers. A
            category without an event is an error, and so is one at prediction that training rows did not
            have. Of :class:`~sstorch.SurvivalRegression` only.
    """

    numeric: NumericEncodings = "auto"
    gate_numeric: NumericEncodings = "linear"
    interactions: Sequence[tuple[str, str]] | Literal["all"] = ()
    monotone: Mapping[str, str] | None = None
    missing_numbers: Numeric = "mean"
    missing_categories: Categorical = "zeros"
    missing: Sequence[str] = ()
    offset: str | None = None
    strata: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Values as the batch trainer names them."""
        values = self.get_params()
        return values | {"offset_column": values.pop("offset")}

    def to_dict(self) -> dict[str, Any]:
        """What is saved with a model."""
        return {
            "numeric": ColumnEncodings.of(self.numeric).plain,
            "gate_numeric": ColumnEncodings.of(self.gate_numeric).plain,
            "interactions": parse_interactions(self.interactions),
            "monotone": None if self.monotone is None else dict(self.monotone),
            "missing_numbers": self.missing_numbers,
            "missing_categories": self.missing_categories,
            "missing": list(self.missing),
            "offset": self.offset,
            "strata": self.strata,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of :meth:`to_dict`."""
        pairs, missing = parse_interactions(values["interactions"]), tuple(values["missing"])
        return cls(**{**values, "interactions": pairs, "missing": missing})


# Defaults in signatures; an estimator copies them before it changes one.
PENALTIES, GROUP_PENALTIES, GATE_PENALTIES = Penalties(), GroupPenalties(), GatePenalties()
CURVED, LINEAR = Columns(), Columns(numeric="linear")
