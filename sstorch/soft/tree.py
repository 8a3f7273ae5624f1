"""Soft survival trees: gates and leaves trained on the outcomes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from typing_extensions import override

from sstorch.data.encodings import ColumnEncodings, Linear
from sstorch.fitted import Prediction
from sstorch.monitoring import Callback
from sstorch.nn import Spline, make_family
from sstorch.optim import Leaves, Nodec, Trainer
from sstorch.soft.batch import training_rows
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.parameters import CURVED, GATE_PENALTIES, Columns, GatePenalties, Penalties
from sstorch.soft.settings import AUTO, ESTIMATED, BatchSettings, Dtype, Init, Leaf, TrainerName

# Ridge on slopes of leaves where penalties are not estimated.
_RIDGE = 1e-3
# Least share of a leaf under distilled gates.
_LEAST = 0.1


class SoftSurvivalTree(SoftEstimator):
    """Soft survival tree: soft multivariate splits and a parametric survival model in each leaf.

    By default all penalties are estimated by marginal likelihood, as in
    :class:`~sstorch.SurvivalRegression`. Leaves share a common part and have levels, slopes and shapes of
    their own. Candidates for the gates are those of :class:`~sstorch.PrognosticTree`, which use one column
    each, and a gate of several columns that is trained on the outcomes together with its leaves, from
    starting values where columns interact. ``choice_`` reports the evidence of each; the one with the most is
    taken. With competing causes the gates are shared, and each cause has its own hazards. A prediction uses
    one leaf, reached by the most probable branch at every gate.

    With a ``trainer`` the tree that the evidence has chosen is trained further: gates and leaves minimise the
    training objective under the estimated variances. With starts other than ``"distilled"``, or ``ridge`` as
    a number, they do so under fixed penalties; :meth:`paper` has the published settings.

    Args:
        depth: number of gates on every path, 0 (no gate: a parametric regression) to 6.
        leaf: name of a hazard family (``"log_logistic"``, ``"weibull"``, ``"spline_po"`` ...) or a family
            object such as ``Spline(scale="odds", knots=3)``, with estimated penalties also a mapping from
            causes to these. ``"auto"`` is ``"spline_po"``, with competing causes ``"spline_ph"``; with fixed
            penalties ``"log_logistic"``.
        trainer: a name or settings such as ``Nodec(eps="eps_ordered", macro_iterations=5)``: ``"nodec"``
            (node-based decomposition), ``"joint"`` (all parameters at once), ``"nodec+joint"``, or
            ``"leaves"`` (gates keep their starting values). None for the estimate itself, in which fairness,
            custom penalties and other restrictions train the leaves; if penalties are fixed, ``"nodec"``.
        init: starting values: ``"distilled"``, gates distilled from a regression; with fixed penalties also
            ``"random"``, ``"kmeans"``, ``"cox"`` for spline leaves, or ``"distilled+random"``, one distilled
            start and random others.
        n_starts: number of starts with fixed penalties, trained as one batch. The tree with the lowest
            training objective, or the lowest loss on held-out rows, is kept. Distilled starts are identical:
            there is one.
        only_if_needed: with estimated penalties, if no gates have more evidence than the regression: True for
            a single group, False for groups of its predictions.
        penalties: :class:`~sstorch.GatePenalties`, or :class:`~sstorch.Penalties` (others have default
            values); grids use ``penalties__gate_ridge``.
        columns: :class:`~sstorch.Columns`, encodings of the columns in leaves and gates; with fixed penalties
            ``numeric="auto"`` is linear.
        prediction: ``"hbp"``, the leaf on the path of highest branch probability, or ``"mixture"``, the
            average curve of all leaves, weighted by probability.
        min_leaf: minimum weighted share of the training rows per leaf, in [0, .5); 0 for .1 where gates are
            distilled, else for none. Training adds a penalty, 10 times the sum of squared shortfalls of the
            leaf shares, with soft routing.
        random_state: seed; the same seed gives the same tree on the same machine.
        device, dtype, verbose, time_unit: as for :class:`~sstorch.SurvivalRegression`.

    References:
        Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis"; MacKay (1992), "Bayesian
        interpolation", Neural Computation 4, 415-447, on the evidence.

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
        trainer: TrainerName | Trainer | None = None,
        init: Init = "distilled",
        n_starts: int = 10,
        only_if_needed: bool = False,
        penalties: Penalties = GATE_PENALTIES,
        columns: Columns = CURVED,
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
        self.only_if_needed = only_if_needed
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
        """Create a tree with the settings of the published study.

        As published: NODEC-DR-SST with 10 macro iterations and the thresholds (.1, .3, .4), 20 starts, random
        or by ``init="cox"`` for spline leaves. Differences: the gates have a ridge of 1e-3, since L-BFGS
        without it fits the training rows more closely than SLSQP in the study (training concordance .05 above
        the published one at depth 2); the ridge on slopes is 1e-3, added to the mean loss; survival curves of
        splines cannot increase; a missing category has all indicators 0. ``docs/training.md`` gives the
        reasons.

        Args:
            depth: gates on every path, 0 to 6.
            leaf: hazard family.
            parameters: other parameters, which override these.

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
        checkpoint: str | os.PathLike[str] | None = None,
        sensitive: object = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Train ``n_starts`` trees and keep the best one.

        Args:
            X: DataFrame (numeric, boolean, categorical or text columns; missing values allowed), or array (n,
                p). Columns that :meth:`Surv.of <sstorch.Surv.of>` used for ``y`` are not features.
            y: :class:`~sstorch.Surv`: right-censored, left-truncated (``entry``), start-stop rows of subjects
                (``entry`` and ``id``; covariates may change from row to row, and folds and resamples keep the
                rows of a subject together), or interval-censored. A right-censored outcome may also be a
                (time, event) tuple, a structured array with an event and a time field, or a DataFrame with
                the columns ``time`` and ``event``.
            sample_weight: (n,), >= 0: sampling weights, such as inverse probabilities of selection. The tree
                and confidence intervals do not depend on their scale. Tables contain weighted mean
                predictions, weighted Kaplan-Meier estimates, and limits from robust variances with w^2 and
                the effective sample size (sum w)^2 / sum w^2. For integer counts of observed rows, repeat the
                rows, as with ``X.loc[X.index.repeat(w)]``.
            checkpoint: path of a file that is written after every pass of the training. If it exists, from an
                interrupted call with the same parameters and data, training continues from it and returns the
                same tree: bit for bit on the same machine with the same number of threads, on CUDA up to
                rounding.
            sensitive: group of each row (n,), for ``penalties.fairness``; or the name of a column of ``X``,
                which then is not a feature. To have it as a feature too, give its values:
                ``sensitive=X["sex"]``.
            callbacks: list of :class:`~sstorch.monitoring.Callback`, such as
                :class:`~sstorch.monitoring.TensorBoard`, called after every step and pass of the training of
                the ``n_starts`` trees.

        Raises:
            DataError: the data are invalid; the message names column, rows and remedy.
            ConfigError: a parameter has an invalid value, or the checkpoint belongs to other parameters, data
                or versions of the software.
            FormatError: the checkpoint is truncated or altered.
        """
        data = training_rows(X, y, sample_weight, sensitive)
        return self._fit_data(data, checkpoint=checkpoint, callbacks=callbacks)

    def _batch_settings(self) -> BatchSettings:
        """The checked parameters, as the batch trainer takes them."""
        shared, trainer, distilled = self._shared_settings(), self.trainer, self.init == "distilled"
        estimated = shared["ridge"] == ESTIMATED and distilled
        if estimated:
            trainer = Leaves() if trainer is None else trainer
        else:
            trainer = Nodec() if trainer is None else trainer
            shared["numeric"] = ColumnEncodings.of(shared["numeric"], "numeric").settled(Linear())
            if shared["ridge"] == ESTIMATED:
                shared["ridge"] = _RIDGE
        least = self.min_leaf
        if self.init in ("distilled", "distilled+random") and least == 0:
            least = _LEAST
        return BatchSettings.check(
            depth=self.depth,
            leaf=self.leaf,
            trainer=trainer,
            init=self.init,
            n_starts=1 if distilled else self.n_starts,
            prediction=self.prediction,
            min_leaf=least,
            trains_gates=estimated,
            only_if_needed=self.only_if_needed,
            **shared,
        )

    @property
    @override
    def _prediction(self) -> Prediction:
        return self.prediction
