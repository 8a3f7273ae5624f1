"""The scikit-learn front of the exact trees."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from sstorch.data import SurvivalData
from sstorch.estimators.exact_persistence import load_exact_tree
from sstorch.estimators.exact_search import ExactSettings, Objective
from sstorch.estimators.exact_tree import ExactSurvivalTree
from sstorch.estimators.settings import check_device
from sstorch.optimal import Binarizer
from sstorch.optimal.binarize import Preset
from sstorch.optimal.leaf_curves import Curve


class OptimalSurvivalTree(ExactSurvivalTree):
    """Survival tree of least training loss among all trees of its size, over yes-no questions.

    Columns become questions such as "age > 45.5" (`binarize`), and a search that leaves no tree out finds the
    one with the least loss on the training rows. "Optimal" is meant so: for this objective, these rows and
    these questions.

    Args:
        max_depth: most questions on a path, 0 (a single leaf) to 5.
        max_nodes: most questions in all, one less than leaves; None is what the depth can hold.
        objective: ``"log_likelihood"``, half the deviance of proportional hazards with one hazard ratio per
            leaf, in total over the rows (SurTree); ``"integrated_brier"``, the Brier score of one curve per
            leaf, weighted for censoring and integrated over the observed times (OSST).
        leaf_penalty: loss that each leaf costs, >= 0, in the unit of the objective.
        min_leaf: least number of training rows of a leaf.
        min_events: least number of training events of a leaf.
        binarize: how columns become questions: a preset of :class:`~sstorch.optimal.Binarizer`
            (``"surtree"``, ``"osst"``, ``"all"``, ``"quantiles"``, ``"boosted"``), a Binarizer with settings
            of one's own, or False for columns that hold 0 and 1 already.
        leaf_curve: curve of a leaf, ``"kaplan_meier"`` with either objective; ``"proportional_hazards"`` with
            the log-likelihood, exp(-theta Λ(t)), the curve that is its loss; ``"ipcw"`` with the Brier score,
            the step function of least weighted Brier score, which is then searched with, too (the curve is
            pooled to fall where that of the search rises, and 0 beyond the follow-up of the leaf).
        device: ``"cpu"`` or a CUDA device such as ``"cuda"``.
        time_limit: seconds, or None. Where they do not suffice, the best tree found is kept, with `gap_`.
        n_buckets: for ``"integrated_brier"``, None for all observed times, or a number of buckets of equal
            width that times are put in for the search (not for the curves).
        memory: bytes that the search may take.

    Attributes:
        tree_: :class:`~sstorch.optimal.BinaryTree` over the questions.
        rules_: the questions, as :class:`~sstorch.optimal.Rule`.
        loss_: training loss of the tree: a total over rows, or an integrated Brier score.
        objective_: `loss_` and `leaf_penalty` for each leaf.
        certified_: whether it is proved that no tree within the budget has a smaller `objective_`.
        gap_: the most by which `objective_` can exceed the smallest one; 0 if certified.
        curves_: survival and cumulative hazard of each leaf.
        leaf_table_: training rows and events, hazard ratio (log-likelihood), median and survival by leaf.
        optima_: least loss for every budget (depth, nodes) from the same search.
        path_: nodes and loss of the best tree for every leaf penalty.
        event_times_: distinct training event times, original units, increasing.
        zero_time_: what replaces a time of zero when rows are scored: half the smallest training time.
        schema_: columns and categories of the training rows.
        feature_names_in_: raw feature names.
        n_features_in_: their number.
        n_samples_fit_: number of training rows.

    References:
        Huisman, van der Linden and Demirović (2024), Optimal survival trees: a dynamic programming approach,
        AAAI 38. Zhang, Xin, Seltzer and Rudin (2024), Optimal sparse survival trees, AISTATS.

    >>> from sstorch import load_dataset
    >>> data = load_dataset("gbsg2")
    >>> tree = OptimalSurvivalTree(max_depth=2).fit(data.frame, (data.time, data.event))
    >>> print(tree.export_text())
    if pnodes > 3:
    ...
    >>> tree.certified_, tree.predict_survival_function(data.frame[:2], times=[365.0, 730.0]).shape
    (True, (2, 2))
    """

    def __init__(
        self,
        max_depth: int = 3,
        max_nodes: int | None = None,
        objective: Objective = "log_likelihood",
        leaf_penalty: float = 0.0,
        min_leaf: int = 1,
        binarize: Preset | bool | Binarizer = "surtree",
        leaf_curve: Curve = "kaplan_meier",
        device: str = "cpu",
        time_limit: float | None = None,
        min_events: int = 0,
        n_buckets: int | None = None,
        memory: int = 4 * 2**30,
    ) -> None:
        self.max_depth = max_depth
        self.max_nodes = max_nodes
        self.objective = objective
        self.leaf_penalty = leaf_penalty
        self.min_leaf = min_leaf
        self.binarize = binarize
        self.leaf_curve = leaf_curve
        self.device = device
        self.time_limit = time_limit
        self.min_events = min_events
        self.n_buckets = n_buckets
        self.memory = memory

    def fit(self, X: object, y: object) -> Self:
        """Search for the tree; all rows count alike and are taken as observed from time zero.

        Args:
            X: DataFrame (numeric, boolean, categorical or text columns; missing values allowed), or array
                (n, p); with ``binarize=False`` columns of 0 and 1.
            y: structured array with an event and a time field, a (time, event) tuple, or a DataFrame with the
                columns ``time`` and ``event``.

        Raises:
            DataError: the data cannot be used; the message names column, rows and remedy.
            ConfigError: a parameter has a value that does not exist, or there are too many questions for the
                depth: the message estimates memory and time.
        """
        settings = ExactSettings.check(**self.get_params(deep=False))
        return self._adopt(settings.search(SurvivalData(X, y)))

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> Self:
        """Read a tree written by :meth:`save`; ``device`` is where it would be fitted anew.

        Raises:
            FormatError: files are missing, altered or of an unknown format version.
            ConfigError: torch does not see the device.
        """
        check_device(device)
        tree: Self = load_exact_tree(cls, Path(path), device)
        return tree
