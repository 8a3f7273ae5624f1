"""Prognostic trees chosen by cross-validation among regressions, groups, and gates trained on outcomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted

from sstorch._types import FloatArray
from sstorch.base import FrameEstimator
from sstorch.checks import check_integer
from sstorch.data import Schema, SurvivalData, folds_of
from sstorch.exceptions import ConfigError, FormatError, TrainingError
from sstorch.files import JSON_NAME, checksum, read_folder, reading, write_folder
from sstorch.metrics.scoring import remedy_for_names
from sstorch.nn import HazardFamily
from sstorch.parameters import NestedParameters
from sstorch.soft.batch import training_rows
from sstorch.soft.candidates import (
    FAMILIES,
    SEARCHED,
    Candidate,
    Family,
    Grid,
    automatic_encodings,
    automatic_leaves,
    candidates,
)
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.parameters import CURVED, Columns
from sstorch.soft.prognostic import PrognosticTree
from sstorch.soft.regression import SurvivalRegression
from sstorch.soft.search import SCORINGS, FoldSearch, Scores, Scoring
from sstorch.soft.settings import LeafName, as_json, from_json
from sstorch.soft.tree import SoftSurvivalTree

_TITLES = {
    "regression": "regression, one group",
    "groups": "groups, distilled gates",
    "gates": "gates trained on outcomes",
}
_CLASSES: dict[str, type[SoftEstimator]] = {
    "regression": SurvivalRegression,
    "groups": PrognosticTree,
    "gates": SoftSurvivalTree,
}
GRID = Grid()

# What functions of a fitted tree ask for.
_HOOKS = (
    "_tree",
    "_export_text",
    "_export_graphviz",
    "_formula",
    "_deployed",
    "_rows",
    "_leaf_of",
    "node_table_",
)

FORMAT = "sstorch.prognostic_tree_cv"
FORMAT_VERSION = 2
TREE_FOLDER = "tree"

Strategy = Literal["growing", "grid", "halving"]
Preference = Literal["groups", "accuracy"]


class PrognosticTreeCV(NestedParameters, FrameEstimator):
    """The best of regressions, groups, and gates trained on outcomes, by cross-validation.

    Three families are compared: :class:`~sstorch.SurvivalRegression`, which has no gate;
    :class:`~sstorch.PrognosticTree`, whose gates are distilled from a regression and stay; and
    :class:`~sstorch.SoftSurvivalTree`, whose gates are trained on the outcomes together with leaves that have
    slopes of their own. By default (``prefer``) the best groups are taken, unless the best of all is better
    by more than the folds leave open. The chosen model is ``best_estimator_``; the search hands on
    ``predict*``, ``apply`` and ``score`` of it.

    Depths, leaves, encodings and what ``grid`` holds take one value or several; each choice of one of each is
    a candidate. Candidates of the same family, depth, leaf, encodings, ``init`` and ``gate_features`` are one
    tensor program: folds x penalties x starts. Preprocessing with the knots of curves, starts and, within a
    fold, the choice of the start see the training rows of that fold only. The chosen candidate is then
    trained on all rows. What is compared by default comes from the studies in ``experiments/accuracy`` and
    ``experiments/tree_search``.

    Args:
        depth: depths compared, 0 for regressions. None for 0, groups of depth 2, and gates of depths 1 to 4.
        leaf: hazard families, names or objects; ``"auto"`` compares ``"log_logistic"``, ``"spline_ph"`` and
            ``"spline_po"``, or takes ``"logistic_hazard"`` where the events are at no more than twelve
            distinct times, as where whole years were recorded.
        families: that are compared: ``"regression"``, ``"groups"`` and ``"gates"``. Where causes compete
            gates are not trained on the outcomes, and that family is left out.
        grid: :class:`~sstorch.Grid`, what is compared beside these; ``grid__ridge`` sets one.
        columns: :class:`~sstorch.Columns` of all candidates, whose ``numeric`` is one encoding or several;
            ``"auto"`` compares ``"linear"``, ``"log"``, ``"piecewise"`` and ``"spline"``, the latter two
            where there are 100 events or more, without splines where there is ``monotone``.
        cv: folds, stratified by event.
        scoring: what is compared on the rows left out: ``"log_likelihood"``, mean per row; ``"c_harrell"``,
            time-dependent concordance; ``"ibs"``, integrated Brier score (convention ``"graf"``) with its
            sign turned, of competing causes the mean over causes; or a scorer of scikit-learn,
            ``scorer(tree, X, y)``, greater is better, which sees no weights. The likelihood sees every row at
            its own time and is the least noisy where rows are few; it prefers leaves that are sharp where
            many times are equal.
        search: ``"growing"``: regressions, then groups, then gates depth by depth, as long as these improve
            the score; of every leaf the ``ridge``, ``numeric`` and ``roughness`` that are best at the first
            stage are kept, and beyond depth 2 the ``gate_ridge`` that is best there; groups have the best
            leaf, and every further depth of gates the two leaves that are best at the stage before;
            ``"grid"``: all candidates; or ``"halving"``: all candidates with few starts, the best third of
            them with three times as many, and so on to ``n_starts``.
        prefer: ``"groups"`` takes the best groups, unless the best of all is better by more than one standard
            error of the difference, paired by folds; ``"accuracy"`` takes the best of all.
        one_standard_error: take the simplest candidate whose mean score is within one standard error of the
            best: smallest depth, fewest ``gate_features``, then straight lines before logarithms before
            curves, first encoding, leaf and init, fewest starts, largest ``fused``, ``gate_ridge``, ``ridge``
            and ``roughness``.
        device: ``"cpu"`` or a CUDA device such as ``"cuda"``.
        random_state: seed of folds and starts, an integer.
        verbose: 1 shows progress.
        time_unit: unit of the times, as of :class:`~sstorch.PrognosticTree`.

    Attributes:
        best_estimator_: the chosen model, trained on all rows. Its ``group_validation_`` says whether its
            groups differ on rows left out; these are the rows that it was chosen by.
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
            groups alone (``c_groups``, :func:`~sstorch.metrics.concordance_of_groups`; nan for one group),
            rank (the first listed of those that agree in four decimals is better), seconds (its share of its
            batch), and of a halving the last ``rung`` it reached and the ``starts`` it had there.
        folds_: fold of each row.
        feature_names_in_, n_features_in_: of the chosen model.

    >>> from sstorch import load_dataset
    >>> data = load_dataset("gbsg2")
    >>> search = PrognosticTreeCV(
    ...     leaf="log_logistic", families=("regression", "groups"), columns=Columns(numeric="log"), cv=2
    ... )
    >>> search = search.fit(data.frame, (data.time, data.event))
    >>> search.families_["c_groups"].round(1).to_dict()
    {'regression': nan, 'groups': 0.7}
    """

    best_estimator_: SoftEstimator
    best_params_: dict[str, Any]
    best_score_: float
    best_index_: int
    cv_results_: pd.DataFrame
    families_: pd.DataFrame
    folds_: npt.NDArray[np.int64]

    def __init__(
        self,
        depth: int | Sequence[int] | None = None,
        leaf: LeafName | HazardFamily | Sequence[LeafName | HazardFamily] = "auto",
        families: Sequence[Family] = FAMILIES,
        grid: Grid = GRID,
        columns: Columns = CURVED,
        cv: int = 5,
        scoring: Scoring | Callable[[Any, Any, Any], float] = "log_likelihood",
        search: Strategy = "growing",
        prefer: Preference = "groups",
        one_standard_error: bool = False,
        device: str = "cpu",
        random_state: int = 0,
        verbose: int = 0,
        time_unit: str | None = None,
    ) -> None:
        self.depth = depth
        self.leaf = leaf
        self.families = families
        self.grid = grid
        self.columns = columns
        self.cv = cv
        self.scoring = scoring
        self.search = search
        self.prefer = prefer
        self.one_standard_error = one_standard_error
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.time_unit = time_unit

    # ------------------------------------------------------------------ fit

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Choose a candidate and train it on all rows.

        Args:
            X: as for :meth:`SoftSurvivalTree.fit <sstorch.SoftSurvivalTree.fit>`.
            y: likewise, or :class:`~sstorch.Surv` with ``causes``; with entry times not for ``scoring="ibs"``
                or a function, which do not support left truncation.
            sample_weight: (n,), >= 0: sampling weights, as in :meth:`SoftSurvivalTree.fit
                <sstorch.SoftSurvivalTree.fit>`; scores are weighted, too.

        Raises:
            DataError: the data cannot be used, or too few events for so many folds.
            ConfigError: a parameter has a value that does not exist.
            TrainingError: no candidate has a finite score.
        """
        return self._fit_data(training_rows(X, y, sample_weight))

    def _fit_data(self, data: SurvivalData, schema: Schema | None = None) -> Self:
        """:meth:`fit` to rows of positive weight.

        Args:
            data: rows.
            schema: columns and vocabulary; taken from the rows if None.
        """
        n_folds, seed = check_integer("cv", self.cv, 2), self._seed()
        self.folds_ = folds_of(data, n_folds, seed)  # of rows as they were given
        data = data.joined()
        compared = self.candidates(data)
        schema = Schema.of(data.frame) if schema is None else schema
        folds = folds_of(data, n_folds, seed)
        search = FoldSearch(self.estimator, data, folds, schema, self.scoring, bool(self.verbose))
        searches = {"growing": search.growing, "grid": search.grid, "halving": search.halving}
        scores = searches[self.search](compared)
        best = self._choose(scores)
        self.best_params_ = scores.candidates[best].parameters
        self.best_estimator_ = self.estimator(scores.candidates[best])._fit_data(data, schema)
        if scores.candidates[best].depth and data.intervals is None:
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
        lists = self.grid.get_params() | {
            "depth": self.depth,
            "leaf": automatic_leaves(self.leaf, data),
            "numeric": automatic_encodings(self.columns.numeric, data, self.columns.monotone),
        }
        families = list(self.families)
        if data is not None and data.causes is not None:
            families = [family for family in families if family != "gates"]
        listed = candidates(lists, families)
        checked: set[str] = set()
        for candidate in listed:
            # Every value once, and those together that have to fit each other.
            fitting = str((*candidate.batch, candidate.fused))
            news = {fitting, *(f"{name}={value!r}" for name, value in candidate.parameters.items())}
            if not news <= checked:
                self.estimator(candidate)._batch_settings()
                checked |= news
        if self.search == "halving" and len({each.n_starts for each in listed if each.family == "gates"}) > 1:
            raise ConfigError("search='halving' goes from few starts to many: give one number of n_starts")
        return listed

    def estimator(self, candidate: Candidate) -> SoftEstimator:
        """The estimator, not fitted, that a candidate is."""
        return candidate.estimator(
            self.columns,
            self.grid.trainer,
            device=self.device,
            random_state=self._seed(),
            time_unit=self.time_unit,
        )

    # ------------------------------------------------------------------ predict

    def __getattr__(self, name: str) -> Any:
        if name in _HOOKS:
            raise AttributeError(
                "a search is no fitted tree: give its best_estimator_ to functions that read, validate or "
                "export one"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def _chosen(self) -> Any:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    @property
    def _schema(self) -> Schema:
        schema: Schema = self._chosen._schema
        return schema

    def predict(self, X: object, *args: Any, **options: Any) -> Any:
        """See the method of ``best_estimator_``."""
        return self._chosen.predict(X, *args, **options)

    def predict_survival_function(self, X: object, *args: Any, **options: Any) -> Any:
        """See the method of ``best_estimator_``."""
        return self._chosen.predict_survival_function(X, *args, **options)

    def predict_cumulative_hazard_function(self, X: object, *args: Any, **options: Any) -> Any:
        """See the method of ``best_estimator_``."""
        return self._chosen.predict_cumulative_hazard_function(X, *args, **options)

    def predict_hazard_function(self, X: object, *args: Any, **options: Any) -> Any:
        """See the method of ``best_estimator_``."""
        return self._chosen.predict_hazard_function(X, *args, **options)

    def predict_cumulative_incidence(self, X: object, *args: Any, **options: Any) -> Any:
        """See the method of ``best_estimator_``."""
        return self._chosen.predict_cumulative_incidence(X, *args, **options)

    def predict_quantile(self, X: object, *args: Any, **options: Any) -> Any:
        """See the method of ``best_estimator_``."""
        return self._chosen.predict_quantile(X, *args, **options)

    def predict_rmst(self, X: object, *args: Any, **options: Any) -> Any:
        """See the method of ``best_estimator_``."""
        return self._chosen.predict_rmst(X, *args, **options)

    def predict_leaf_proba(self, X: object, *args: Any, **options: Any) -> Any:
        """See the method of ``best_estimator_``."""
        return self._chosen.predict_leaf_proba(X, *args, **options)

    def apply(self, X: object, *args: Any, **options: Any) -> Any:
        """See the method of ``best_estimator_``."""
        return self._chosen.apply(X, *args, **options)

    def score(self, X: object, *args: Any, **options: Any) -> Any:
        """See the method of ``best_estimator_``."""
        return self._chosen.score(X, *args, **options)

    # ------------------------------------------------------------------ read and keep

    def summary(self) -> str:
        """What was chosen and what the others score, the five best candidates, and the tree, as text."""
        tree, table = self._chosen, self.cv_results_
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
        if len(self.families_) > 1 and self.best_params_["depth"] == 0:
            lines.append("No gate is better on rows left out: this is a regression, one group.")
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        """Write the table of the search and the chosen tree into a folder, no pickle.

        Raises:
            ConfigError: the folder cannot be written, or a leaf is not registered.
        """
        folder, tree, table = Path(path), self._chosen, self.cv_results_
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
            "family": self.cv_results_["family"].iloc[self.best_index_],
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
        kind = _CLASSES.get(str(state.get("family")), PrognosticTree)
        tree = kind.load(folder / TREE_FOLDER, device)
        with reading(folder):
            if _tree_checksum(folder) != state["tree_sha256"]:
                raise FormatError(f"{folder / TREE_FOLDER} is the tree of another search")
            columns: dict[str, Any] = {
                name: pd.Series(state["texts"].get(name, tensors.get(name)), dtype=dtype)
                for name, dtype in state["columns"]
            }
            chosen = {name: from_json(value) for name, value in state["best_params"].items()}
            parameters = {"leaf": tree.leaf, **chosen}
            search = cls()
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
        """Copy from the chosen model what scikit-learn reads of a fitted estimator."""
        for name in ("feature_names_in_", "n_features_in_"):
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
