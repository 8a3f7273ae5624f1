"""Soft survival trees whose size and penalties are chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from sstorch._types import FloatArray
from sstorch.checks import check_integer
from sstorch.data import Schema, SurvivalData, folds_of
from sstorch.data.encodings import NumericEncodings
from sstorch.data.preprocessing import Categorical, Numeric
from sstorch.exceptions import ConfigError, FormatError, TrainingError
from sstorch.files import JSON_NAME, checksum, read_folder, reading, write_folder
from sstorch.metrics.scoring import remedy_for_names
from sstorch.nn import HazardFamily, Prediction
from sstorch.optim import Engine, Trainer
from sstorch.soft.batch import training_rows
from sstorch.soft.candidates import (
    FAMILIES,
    SEARCHED,
    Candidate,
    automatic_encodings,
    automatic_leaves,
    candidates,
)
from sstorch.soft.fitted import FittedTree
from sstorch.soft.reading import ReadableTree
from sstorch.soft.rules import GateRule
from sstorch.soft.search import SCORINGS, FoldSearch, Scores, Scoring
from sstorch.soft.settings import GateRidgeUnits, as_json, from_json
from sstorch.soft.tree import SoftEstimator, SoftSurvivalTree

_TITLES = {
    "regression": "regression, one leaf",
    "groups": "groups, distilled gates",
    "gates": "gates trained on outcomes",
}

FORMAT = "sstorch.soft_survival_tree_cv"
FORMAT_VERSION = 1
TREE_FOLDER = "tree"

Strategy = Literal["growing", "grid", "halving"]
Preference = Literal["groups", "accuracy"]


class SoftSurvivalTreeCV(SoftEstimator, ReadableTree):
    """Soft survival tree chosen by cross-validation among regressions, groups, and gates trained on outcomes.

    Three families of trees are compared: regressions, which have no gate; groups, whose gates are distilled
    from a regression and stay; and gates that are trained on the outcomes together with leaves that have
    slopes of their own. By default (``prefer``) the best groups are taken, unless the best tree of all is
    better by more than the folds leave open. ``init`` or ``trainer`` narrow the choice: with
    ``trainer="nodec"`` no groups are compared, with ``init="distilled"`` no other gates.

    Every parameter from ``depth`` to ``n_starts``, ``numeric``, ``roughness`` and ``gate_features`` take one
    value or several; each choice of one of each is a candidate. Candidates of the same depth, leaf,
    encodings, ``init`` and ``gate_features`` are one tensor program: folds x penalties x starts.
    Preprocessing with the knots of curves, starts and, within a fold, the choice of the start see the
    training rows of that fold only. The chosen candidate is then trained on all rows. What is compared by
    default comes from the studies in ``experiments/accuracy`` and ``experiments/tree_search``; all else is
    the default of :class:`~sstorch.SoftSurvivalTree`.

    Args:
        depth: depths compared. Of depth 0, a single leaf, only ``leaf``, ``ridge``, ``numeric`` and
            ``roughness`` matter: other parameters make no candidates of their own. None for 0, groups of
            depth 2, and gates of depths 1 to 4.
        leaf: hazard families, names or objects; ``"auto"`` compares ``"log_logistic"``, ``"spline_ph"`` and
            ``"spline_po"``, or takes ``"logistic_hazard"`` where the events are at no more than twelve
            distinct times, as where whole years were recorded.
        ridge: coefficients of the ridge on the slopes of the leaves.
        gate_ridge: of the ridge on the weights of gates that are trained.
        fused: of the penalty on differences between leaves. None for infinity (slopes that all groups share),
            0.1 and 0.01 in groups, and 0 with other gates.
        init: kinds of initial solutions; None for ``"distilled"``, which makes groups, and ``"random"``, or
            for the one that goes with the ``trainer``.
        n_starts: numbers of initial solutions; fewer starts are the first of the most, and cost nothing more.
            None for 1 where gates are distilled, and 10 otherwise.
        cv: folds, stratified by event.
        scoring: what is compared on the rows left out: ``"log_likelihood"``, mean per row; ``"c_harrell"``,
            time-dependent concordance; ``"ibs"``, integrated Brier score (convention ``"graf"``) with its
            sign turned; or a scorer of scikit-learn, ``scorer(tree, X, y)``, greater is better, which sees
            no weights. The likelihood sees every row at its own time and is the least noisy where rows are
            few; it prefers leaves that are sharp where many times are equal.
        search: ``"growing"``: regressions, then groups, then gates depth by depth, as long as these improve
            the score; of every leaf the ``ridge``, ``numeric`` and ``roughness`` that are best at the first
            stage are kept, and beyond depth 2 the ``gate_ridge`` that is best there; groups have the best
            leaf, and every further depth of gates the two leaves that are best at the stage before;
            ``"grid"``: all candidates; or ``"halving"``: all candidates with few starts, the best third of
            them with three times as many, and so on to ``n_starts``.
        one_standard_error: take the simplest candidate whose mean score is within one standard error of the
            best: smallest depth, fewest ``gate_features``, then straight lines before logarithms before
            curves, first encoding, leaf and init, fewest starts, largest ``fused``, ``gate_ridge``, ``ridge``
            and ``roughness``.
        trainer: of all trees; None for ``"leaves"`` where gates are distilled, and ``"nodec"`` otherwise.
            ``"joint"`` trains gates in less time than the decomposition and predicts as well here.
        holdout: with a share above 0 the start of a fold, and the point of its training, are chosen by the
            loss on that share of the fold's training rows instead of by the training objective.
        random_state: seed of folds and starts, an integer.
        prediction, device, dtype, engine, verbose, missing_numbers, missing_categories: of all trees, as
            parameters of :class:`~sstorch.SoftSurvivalTree`.
        numeric: encodings of numeric columns in the leaves, each for all columns, or a dictionary by column,
            as of :class:`~sstorch.SoftSurvivalTree`; ``"auto"`` compares ``"linear"``, ``"log"``,
            ``"piecewise"`` and ``"spline"``, the latter two where there are 100 events or more.
        gate_numeric, interactions, monotone: of all trees; with ``monotone``, ``"auto"`` leaves splines out.
        roughness: coefficients of the penalty on the roughness of curves; encodings without curves have no
            candidates for it.
        gate_features: numbers of columns of a distilled gate; None in the list stands for all.
        prefer: ``"groups"`` takes the best groups, unless the best tree of all is better by more than one
            standard error of the difference, paired by folds; ``"accuracy"`` takes the best of all.
        min_leaf, gate_ridge_units, time_unit: of all trees, as of :class:`~sstorch.SoftSurvivalTree`.

    Attributes:
        best_estimator_: the chosen :class:`~sstorch.SoftSurvivalTree`, trained on all rows; also ``tree_``.
            Its ``group_validation_`` says whether its groups differ on rows left out; these are the rows that
            it was chosen by.
        best_params_: its parameters among those compared; encodings as text, with their options.
        best_score_: its mean score over folds.
        best_index_: its row of ``cv_results_``.
        families_: a row for each family that was compared, of its best candidate: ``mean_score`` and its
            ``standard_error``; ``less_best``, the difference to the best of all, and its standard error,
            paired by folds; ``c_harrell`` and ``c_groups``; whether it was ``chosen``; its row ``index`` of
            ``cv_results_``.
        cv_results_: a row per candidate that was scored: family, parameters, mean, standard deviation and
            standard error of the score over folds, the score of each fold (-inf if no start could be
            trained), the mean concordance of its curves on the rows left out (``c_harrell``) and that of its
            groups alone (``c_groups``, :func:`~sstorch.metrics.concordance_of_groups`; nan for one leaf),
            rank (the first listed of those that agree in four decimals is better), seconds (its share of its
            batch), and of a halving the last ``rung`` it reached and the ``starts`` it had there.
        folds_: fold of each row.
        event_times_, zero_time_, time_unit_, time_varying_, feature_names_in_, n_features_in_: of the chosen
            tree.

    >>> from sstorch import load_dataset
    >>> data = load_dataset("gbsg2")
    >>> tree = SoftSurvivalTreeCV(leaf="log_logistic", init="distilled", cv=2, numeric="log")
    >>> tree = tree.fit(data.frame, (data.time, data.event))
    >>> tree.families_["c_groups"].round(1).to_dict()
    {'regression': nan, 'groups': 0.7}
    """

    best_estimator_: SoftSurvivalTree
    best_params_: dict[str, Any]
    best_score_: float
    best_index_: int
    cv_results_: pd.DataFrame
    families_: pd.DataFrame
    folds_: npt.NDArray[np.int64]

    def __init__(
        self,
        depth: int | Sequence[int] | None = None,
        leaf: str | HazardFamily | Sequence[str | HazardFamily] = "auto",
        ridge: float | Sequence[float] = (1e-4, 1e-3, 1e-2),
        gate_ridge: float | Sequence[float] = (1e-5, 1e-4),
        fused: float | Sequence[float] | None = None,
        init: str | Sequence[str] | None = None,
        n_starts: int | Sequence[int] | None = None,
        cv: int = 5,
        scoring: Scoring | Callable[[Any, Any, Any], float] = "log_likelihood",
        search: Strategy = "growing",
        one_standard_error: bool = False,
        trainer: str | Trainer | None = None,
        holdout: float = 0.0,
        prediction: Prediction = "hbp",
        device: str = "cpu",
        dtype: str = "float64",
        random_state: int = 0,
        verbose: int = 0,
        missing_numbers: Numeric = "mean",
        missing_categories: Categorical = "zeros",
        numeric: NumericEncodings | Sequence[NumericEncodings] = "auto",
        gate_numeric: NumericEncodings = "linear",
        interactions: Sequence[tuple[str, str]] = (),
        roughness: float | Sequence[float] = (1e-3, 1e-2, 1e-1),
        monotone: Mapping[str, str] | None = None,
        gate_features: int | Sequence[int | None] | None = (1, 2, 3),
        prefer: Preference = "groups",
        min_leaf: float | None = None,
        gate_ridge_units: GateRidgeUnits | None = None,
        engine: Engine = "auto",
        time_unit: str | None = None,
    ) -> None:
        self.depth = depth
        self.leaf = leaf
        self.ridge = ridge
        self.gate_ridge = gate_ridge
        self.fused = fused
        self.init = init
        self.n_starts = n_starts
        self.cv = cv
        self.scoring = scoring
        self.search = search
        self.one_standard_error = one_standard_error
        self.trainer = trainer
        self.holdout = holdout
        self.prediction = prediction
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.missing_numbers = missing_numbers
        self.missing_categories = missing_categories
        self.numeric = numeric
        self.gate_numeric = gate_numeric
        self.interactions = interactions
        self.roughness = roughness
        self.monotone = monotone
        self.gate_features = gate_features
        self.prefer = prefer
        self.min_leaf = min_leaf
        self.gate_ridge_units = gate_ridge_units
        self.engine = engine
        self.time_unit = time_unit

    # ------------------------------------------------------------------ fit

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Choose a candidate and train it on all rows.

        Args:
            X: as for :meth:`SoftSurvivalTree.fit <sstorch.SoftSurvivalTree.fit>`.
            y: likewise; with entry times not for ``scoring="ibs"`` or a function, which do not support left
                truncation.
            sample_weight: (n,), >= 0: sampling weights, as in :meth:`SoftSurvivalTree.fit
                <sstorch.SoftSurvivalTree.fit>`; scores are weighted, too.

        Raises:
            DataError: the data cannot be used, or too few events for so many folds.
            ConfigError: a parameter has a value that does not exist.
            TrainingError: no candidate has a finite score.
        """
        return self.fit_data(training_rows(X, y, sample_weight))

    def fit_data(self, data: SurvivalData, schema: Schema | None = None) -> Self:
        """:meth:`fit` to rows of positive weight.

        Args:
            data: rows.
            schema: columns and vocabulary; taken from the rows if None.
        """
        n_folds, seed = check_integer("cv", self.cv, 2), self._seed()
        self.folds_ = folds_of(data, n_folds, seed)  # of rows as they were given
        data = data.joined()
        compared, shared = self.candidates(data), SoftSurvivalTree(**self.shared())
        schema = Schema.of(data.frame) if schema is None else schema
        folds = folds_of(data, n_folds, seed)
        search = FoldSearch(shared, data, folds, schema, self.scoring)
        searches = {"growing": search.growing, "grid": search.grid, "halving": search.halving}
        scores = searches[self.search](compared)
        best = self._choose(scores)
        self.best_params_ = scores.candidates[best].parameters
        self.best_estimator_ = clone(shared).set_params(**self.best_params_).fit_data(data, schema)
        if self.best_estimator_.depth and data.intervals is None:
            self.best_estimator_.group_validation_ = search.validate_groups(scores, best)
        self.best_score_, self.best_index_ = float(scores.mean[best]), best
        self.score_name_ = self.scoring if isinstance(self.scoring, str) else "score"
        self.cv_results_ = _table(scores)
        self.families_ = _families(self.cv_results_, best)
        return self._take_over()

    def candidates(self, data: SurvivalData | None = None) -> list[Candidate]:
        """All that may be compared; a growing search scores a part of them. Every parameter is checked.

        Args:
            data: rows, which settle what ``leaf="auto"`` and ``numeric="auto"`` are; if None, all that these
                may be.

        Raises:
            ConfigError: a parameter has a value that does not exist.
        """
        if self.search not in get_args(Strategy):
            raise ConfigError(f"search must be one of {', '.join(get_args(Strategy))}, got {self.search!r}")
        if self.prefer not in get_args(Preference):
            raise ConfigError(f"prefer must be one of {', '.join(get_args(Preference))}, got {self.prefer!r}")
        if self.scoring not in SCORINGS and not callable(self.scoring):
            raise ConfigError(
                f"scoring must be one of {', '.join(SCORINGS)}, or a scorer of scikit-learn, called with "
                f"(tree, X, y), got {self.scoring!r}{remedy_for_names(self.scoring)}"
            )
        check_integer("cv", self.cv, 2)
        leaves, encodings = (
            automatic_leaves(self.leaf, data),
            automatic_encodings(self.numeric, data, self.monotone),
        )
        lists = self.get_params(deep=False) | {"leaf": leaves, "numeric": encodings}
        listed = candidates(lists, self.trainer)
        checked: set[str] = set()
        for candidate in listed:
            # Every value once, and those together that have to fit each other.
            fitting = str((*candidate.batch, candidate.fused))
            news = {fitting, *(f"{name}={value!r}" for name, value in candidate.parameters.items())}
            if not news <= checked:
                SoftSurvivalTree(**candidate.parameters, **self.shared()).settings()
                checked |= news
        if self.search == "halving" and len({each.n_starts for each in listed if each.family == "gates"}) > 1:
            raise ConfigError("search='halving' goes from few starts to many: give one number of n_starts")
        return listed

    def shared(self) -> dict[str, Any]:
        """Parameters of :class:`SoftSurvivalTree` that all candidates have."""
        of_a_tree = SoftSurvivalTree._get_param_names()
        values = self.get_params(deep=False)
        shared = {name: values[name] for name in of_a_tree if name in values and name not in SEARCHED}
        return shared | {"random_state": self._seed()}

    # ------------------------------------------------------------------ predict

    @property
    def tree_(self) -> SoftSurvivalTree:
        """The chosen tree, trained on all rows."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    @property
    def _alike(self) -> SoftSurvivalTree:
        return self.tree_

    @property
    def _tree(self) -> FittedTree:
        return self.tree_._tree

    @property
    def node_table_(self) -> pd.DataFrame:
        """That of the chosen tree."""
        return self.tree_.node_table_

    @property
    def _gate_rules(self) -> dict[int, GateRule]:
        return self.tree_._gate_rules

    # ------------------------------------------------------------------ read and keep

    def summary(self) -> str:
        """What was chosen and what the others score, the five best candidates, and the tree, as text."""
        tree, table = self.tree_, self.cv_results_
        shown = [*SEARCHED, "mean_score", "standard_error"]
        best = table.sort_values("rank").head(5)[shown].round(4).to_string(index=False)
        row = table.iloc[self.best_index_]
        chosen = ", ".join(f"{name}={row[name]!s}" for name in SEARCHED)
        n_folds = sum(str(name).startswith("fold_") for name in table)
        title = f"Chosen of {len(table)} candidates by {self.score_name_} on {n_folds} folds: {chosen}"
        return "\n\n".join([self._families_text(), f"{title}\n{best}", tree.summary()])

    def _families_text(self) -> str:
        """The families beside each other, a line for each."""
        rows: list[tuple[str, ...]] = [
            ("Rows left out", self.score_name_, "less the best (error)", "concordance", "of groups alone")
        ]
        for name, row in self.families_.iterrows():
            less = f"{row['less_best']:+.4f} ({row['less_best_standard_error']:.4f})"
            told = (
                "-" if np.isnan(row[score]) else f"{row[score]:.3f}" for score in ("c_harrell", "c_groups")
            )
            rows.append((f"  {_TITLES[str(name)]}", f"{row['mean_score']:.4f}", less, *told))
        widths = [max(len(row[place]) for row in rows) for place in range(5)]
        marks = ["", *("  <- chosen" if chosen else "" for chosen in self.families_["chosen"])]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(row[place].rjust(widths[place]) for place in range(1, 5))])
            + mark
            for row, mark in zip(rows, marks, strict=True)
        ]
        if len(self.families_) > 1 and self.tree_.depth == 0:
            lines.append("No gate is better on rows left out: this is a regression, one leaf.")
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        """Write the table of the search and the chosen tree into a folder, no pickle.

        Raises:
            ConfigError: the folder cannot be written, or a leaf is not registered.
        """
        folder, tree, table = Path(path), self.tree_, self.cv_results_
        numbers = [name for name in table if pd.api.types.is_numeric_dtype(table[name])]
        tree.save(folder / TREE_FOLDER)
        state = {
            "scoring": self.scoring if isinstance(self.scoring, str) else None,
            "columns": [[str(name), str(table[name].dtype)] for name in table],
            "texts": {str(name): list(table[name]) for name in table if name not in numbers},
            "best_params": {
                name: as_json(value) for name, value in self.best_params_.items() if name != "leaf"
            },
            "best_score": self.best_score_,
            "best_index": self.best_index_,
            "tree_sha256": _tree_checksum(folder),
        }
        # Scores can be infinite, which JSON is not made for.
        tensors = {str(name): torch.as_tensor(table[name].to_numpy()) for name in numbers}
        tensors["folds_"] = torch.as_tensor(self.folds_)
        write_folder(folder, FORMAT, FORMAT_VERSION, state, tensors)

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> Self:
        """Read what :meth:`save` wrote, the tree onto the given device.

        Kept are the tree, the table and what was chosen, not the parameters of the search but for
        ``scoring``.

        Raises:
            FormatError: files are missing, altered, of different searches or of an unknown format version.
            ConfigError: torch does not see the device.
        """
        folder = Path(path)
        state, tensors = read_folder(folder, FORMAT, FORMAT_VERSION)
        tree = SoftSurvivalTree.load(folder / TREE_FOLDER, device)
        with reading(folder):
            if _tree_checksum(folder) != state["tree_sha256"]:
                raise FormatError(f"{folder / TREE_FOLDER} is the tree of another search")
            columns: dict[str, Any] = {
                name: pd.Series(state["texts"].get(name, tensors.get(name)), dtype=dtype)
                for name, dtype in state["columns"]
            }
            chosen = {name: from_json(value) for name, value in state["best_params"].items()}
            parameters = {"leaf": tree.leaf, **chosen}
            search = cls(**parameters)
            if state["scoring"] is not None:
                search.scoring = state["scoring"]
            search.score_name_ = state["scoring"] or "score"
            search.best_params_ = {name: parameters[name] for name in columns if name in parameters}
            search.best_score_ = float(state["best_score"])
            search.best_index_ = int(state["best_index"])
            search.folds_ = tensors["folds_"].numpy()
        search.cv_results_, search.best_estimator_ = pd.DataFrame(columns), tree
        search.families_ = _families(search.cv_results_, search.best_index_)
        return search._take_over()

    # ------------------------------------------------------------------ internals

    def _seed(self) -> int:
        return check_integer("random_state", self.random_state, 0)

    def _choose(self, scores: Scores) -> int:
        """The place of the candidate that is chosen."""
        best = int(scores.rank.argmin())
        if not np.isfinite(scores.mean[best]):
            raise TrainingError(
                "no candidate has a finite score on every fold; try another leaf, larger ridges or "
                "scoring='c_harrell'"
            )
        among = scores.rung == scores.rung[best]
        groups = among & np.array([each.family == "groups" for each in scores.candidates])
        if self.prefer == "groups" and groups.any():
            difference, error = _paired(scores.folds[_best_of(scores, groups)], scores.folds[best])
            if -difference <= error:
                among = groups
        return _simplest(scores, among) if self.one_standard_error else _best_of(scores, among)

    def _take_over(self) -> Self:
        """Copy from the chosen tree what the base class and scikit-learn read of a fitted estimator."""
        times = ("event_times_", "zero_time_", "time_unit_", "time_varying_", "outcome_type_")
        for name in (*times, "feature_names_in_", "n_features_in_"):
            setattr(self, name, getattr(self.best_estimator_, name))
        return self


def _best_of(scores: Scores, among: npt.NDArray[np.bool_]) -> int:
    """The candidate of the smallest rank among some."""
    return int(np.where(among, scores.rank, len(among) + 1).argmin())


def _simplest(scores: Scores, among: npt.NDArray[np.bool_]) -> int:
    """The simplest of some candidates that are within one standard error of the best of them."""
    best = _best_of(scores, among)
    near = among & (scores.mean >= scores.mean[best] - scores.standard_error[best])
    return min(np.flatnonzero(near).tolist(), key=lambda number: scores.candidates[number].simplicity)


def _paired(ours: FloatArray, others: FloatArray) -> tuple[float, float]:
    """Mean difference of scores on the same folds, and its standard error; nan where one is infinite."""
    with np.errstate(invalid="ignore"):
        difference = ours - others
        return float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference)))


def _families(table: pd.DataFrame, chosen: int) -> pd.DataFrame:
    """The best of each family beside the best of all, from ``cv_results_``; of the chosen one the chosen."""
    folds = table[[name for name in table if str(name).startswith("fold_")]].to_numpy()
    rank, best = table["rank"].to_numpy(), int(table["rank"].to_numpy().argmin())
    rows = {}
    for family in FAMILIES:
        own = (table["family"] == family).to_numpy()
        if not own.any():
            continue
        place = chosen if own[chosen] else int(np.where(own, rank, len(rank) + 1).argmin())
        less_best, error = _paired(folds[place], folds[best])
        row = table.iloc[place]
        rows[family] = {
            "mean_score": row["mean_score"],
            "standard_error": row["standard_error"],
            "less_best": less_best,
            "less_best_standard_error": error,
            "c_harrell": row["c_harrell"],
            "c_groups": row["c_groups"],
            "chosen": place == chosen,
            "index": place,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def _table(scores: Scores) -> pd.DataFrame:
    columns = {
        "mean_score": scores.mean,
        "std_score": scores.std,
        "standard_error": scores.standard_error,
        **{f"fold_{fold}": score for fold, score in enumerate(scores.folds.T)},
        "c_harrell": scores.concordance.mean(axis=1),
        "c_groups": scores.groups.mean(axis=1),
        "rank": scores.rank,
        "rung": scores.rung,
        "starts": scores.starts,
        "seconds": scores.seconds,
    }
    return pd.DataFrame([candidate.row() for candidate in scores.candidates]).assign(**columns)


def _tree_checksum(folder: Path) -> str:
    """Of the tree's JSON, which names the checksum of its tensors."""
    return checksum((folder / TREE_FOLDER / JSON_NAME).read_bytes())
