"""Soft survival trees: gates and leaves trained on the outcomes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Final, Self

import numpy as np
from typing_extensions import override

from sstorch.nn import Prediction, Spline, make_family
from sstorch.optim import Checkpoint, Distillation, Nodec, Trainer
from sstorch.soft.batch import training_rows
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.parameters import GATE_PENALTIES, LINEAR, Columns, GatePenalties, Penalties
from sstorch.soft.settings import AUTO, BatchSettings, Dtype, Init, Leaf, TrainerName

# Training stops, and the best iterate is chosen, by a fifth of the rows.
HELD_OUT: Final = Nodec(holdout=0.2)


class SoftSurvivalTree(SoftEstimator):
    """Soft survival tree: soft multivariate splits, a parametric survival model in each leaf.

    Gates and leaves are trained on the outcomes by the published decomposition. By default training begins at
    gates that are distilled from a regression, and keeps the iterate with the lowest loss on a fifth of the
    rows, which are held out: so most gates divide the rows, and predictions are more accurate than with
    random starts (``docs/training.md``). :meth:`paper` has the published settings. A subject's prediction
    comes from one leaf, that of the most probable branch at every gate. For groups of different prognosis
    see :class:`~sstorch.PrognosticTree`; where causes compete, that class has them.

    Args:
        depth: gates on every path, 0 (no gate: a plain parametric model) to 6.
        leaf: name of a hazard family (``"log_logistic"``, ``"weibull"``, ``"spline_po"`` ...) or a family
            object such as ``Spline(scale="odds", knots=3)``; ``"auto"`` is ``"log_logistic"``.
        trainer: settings such as ``Nodec(eps="eps_ordered", macro_iterations=5)``, by default
            ``Nodec(holdout=0.2)``, without gates ``Nodec()``; or a name: ``"nodec"`` (node-based
            decomposition), ``"joint"`` (all parameters at once), ``"nodec+joint"``, or ``"leaves"`` (gates
            stay where the start has put them). Named trainers hold no rows out, and drop the worse half of
            the starts after three macro iterations (``Race()``).
        init: initial solutions: ``"distilled"``, gates distilled from a regression, of which
            ``Distillation(gate_features, min_leaf)`` has the options; ``"random"``, ``"kmeans"``, ``"cox"``
            for spline leaves; or ``"distilled+random"``, distilled gates of one start and random ones of the
            others.
        n_starts: initial solutions tried, as one batch; the tree with the lowest training objective is kept,
            or with the lowest loss on the rows held out. All distilled ones are the same: there is one.
        penalties: :class:`~sstorch.GatePenalties`, or :class:`~sstorch.Penalties` with the others by
            default; ``penalties__gate_ridge`` is a parameter of a grid.
        columns: :class:`~sstorch.Columns`, what leaves and gates see of the columns; by default all numbers
            as they are.
        prediction: ``"hbp"``, the leaf of the highest-branch-probability path, or ``"mixture"``, the average
            of all leaves' curves by their probabilities.
        min_leaf: least share of the training rows, by weight, in a leaf, in [0, .5): training adds 10 times
            the sum over leaves of the squared share that each lacks of it, rows routed softly.
        device: ``"cpu"`` or a CUDA device such as ``"cuda"``.
        dtype: ``"float64"`` or ``"float32"``.
        random_state: seed; the same seed gives the same tree on the same machine.
        verbose: 1 shows progress.
        time_unit: unit of the times, such as ``"days"``, as texts and figures name it; their round times
            (a year, half a year) follow it. None for that of the data, where these know it.

    References:
        Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis".

    >>> from sstorch import load_dataset
    >>> data = load_dataset("gbsg2")
    >>> tree = SoftSurvivalTree(depth=1).fit(data.frame, data.y)
    >>> tree.predict_survival_function(data.frame[:2], times=[365.0, 730.0]).shape
    (2, 2)
    """

    _format = "sstorch.soft_survival_tree"
    _title = "Soft survival tree"
    _penalties: ClassVar[type[Penalties]] = GatePenalties

    def __init__(
        self,
        depth: int = 2,
        leaf: Leaf = AUTO,
        trainer: TrainerName | Trainer = HELD_OUT,
        init: Init | Distillation = "distilled",
        n_starts: int = 10,
        penalties: Penalties = GATE_PENALTIES,
        columns: Columns = LINEAR,
        prediction: Prediction = "hbp",
        min_leaf: float = 0.0,
        device: str = "cpu",
        dtype: Dtype = "float64",
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
        time_unit: str | None = None,
    ) -> None:
        self.depth = depth
        self.leaf = leaf
        self.trainer = trainer
        self.init = init
        self.n_starts = n_starts
        self.penalties = penalties
        self.columns = columns
        self.prediction = prediction
        self.min_leaf = min_leaf
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.time_unit = time_unit

    @classmethod
    def paper(cls, depth: int = 2, leaf: Leaf = AUTO, **parameters: Any) -> Self:
        """The tree of the published study, with settings under which its results are had again.

        As published: NODEC-DR-SST with 10 macro iterations and the thresholds (.1, .3, .4), 20 starts, random
        or by ``init="cox"`` for spline leaves. Not as published: gates have a ridge of 1e-3, without which
        L-BFGS fits them far deeper to the training rows than the SLSQP of the study (training concordance .05
        above the published one at depth 2); the ridge on slopes is 1e-3, added to a mean loss; splines cannot
        rise; missing categories are none of the column's. ``docs/training.md`` has the reasons.

        Args:
            depth: gates on every path, 0 to 6.
            leaf: hazard family.
            parameters: other parameters; they win over these.

        References:
            Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis", section 5.1.
        """
        curved = not isinstance(leaf, Mapping) and leaf != AUTO and isinstance(make_family(leaf), Spline)
        published: dict[str, Any] = {
            "n_starts": 20,
            "trainer": Nodec.paper(),
            "init": "cox" if curved else "random",
            "penalties": GatePenalties(ridge=1e-3, gate_ridge=1e-3),
            "prediction": "hbp",
            "min_leaf": 0.0,
        }
        return cls(depth, leaf, **(published | parameters))

    def fit(
        self,
        X: object,
        y: object = None,
        sample_weight: object = None,
        *,
        checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
        sensitive: object = None,
    ) -> Self:
        """Train ``n_starts`` trees and keep the best one.

        Args:
            X: DataFrame (numeric, boolean, categorical or text columns; missing values allowed), or
                array (n, p). Columns that :meth:`Surv.of <sstorch.Surv.of>` took into ``y`` are no features.
            y: :class:`~sstorch.Surv`: right-censored, left-truncated (``entry``), start-stop rows of subjects
                (``entry`` and ``id``; covariates may change from row to row, and folds and resamples keep the
                rows of a subject together), or interval-censored. A right-censored outcome may also be a
                (time, event) tuple, a structured array with an event and a time field, or a DataFrame with
                the columns ``time`` and ``event``.
            sample_weight: (n,), >= 0: sampling weights, such as inverse probabilities of selection. Their
                scale changes nothing, neither the tree nor a confidence interval: tables show weighted means
                of the model, weighted Kaplan-Meier estimates, and limits from robust variances with w^2 and
                the effective sample size (sum w)^2 / sum w^2. Integers that count observed rows are no
                such weights: repeat the rows, as with ``X.loc[X.index.repeat(w)]``, or pass
                ``weights="frequency"`` to the functions of :mod:`sstorch.validation`.
            checkpoint: file that is written after every pass of the training. If it is there already, from a
                call with the same parameters and data that was cut short, training goes on from it and ends
                with the same tree; see :class:`~sstorch.optim.Checkpoint`.
            sensitive: group of each row (n,), for ``penalties.fairness``; or the name of a column of ``X``,
                which then is no feature. To have it as a feature too, give its values:
                ``sensitive=X["sex"]``.

        Raises:
            DataError: the data cannot be used; the message names column, rows and remedy.
            ConfigError: a parameter has a value that does not exist, or the checkpoint belongs to other
                parameters or data.
            FormatError: the checkpoint is truncated or altered.
        """
        return self._fit_data(training_rows(X, y, sample_weight, sensitive), checkpoint=checkpoint)

    def _batch_settings(self) -> BatchSettings:
        """The checked parameters, as the batch trainer takes them."""
        init, least, n_starts = self.init, self.min_leaf, self.n_starts
        start: dict[str, Any] = {}
        # Without gates there is one minimum, and nothing to hold rows out for.
        trainer = Nodec() if self.depth == 0 and self.trainer == HELD_OUT else self.trainer
        if init == "distilled+random":
            least = max(least, Distillation().min_leaf)
        if init == "distilled":
            init = Distillation()
        if isinstance(init, Distillation):
            start = {"gate_features": init.gate_features}
            least, init, n_starts = max(least, init.min_leaf), "distilled", 1
        return BatchSettings.check(
            depth=self.depth,
            leaf=self.leaf,
            trainer=trainer,
            init=init,
            n_starts=n_starts,
            prediction=self.prediction,
            min_leaf=least,
            **start,
            **self._shared_settings(),
        )

    @property
    @override
    def _prediction(self) -> Prediction:
        return self.prediction

    @override
    def _plain_parameters(self) -> dict[str, Any]:
        values = super()._plain_parameters()
        init = self.init
        return values | {"init": asdict(init) if isinstance(init, Distillation) else init}

    @classmethod
    @override
    def _from_plain(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        init = values["init"]
        return super()._from_plain(values) | {"init": init if isinstance(init, str) else Distillation(**init)}
