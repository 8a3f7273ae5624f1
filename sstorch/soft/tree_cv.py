"""Prognostic trees chosen by cross-validation among regressions, groups, and gates trained on outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from sstorch.base import FrameEstimator
from sstorch.checks import check_choice, check_integer
from sstorch.data import Schema, SurvivalData, folds_of
from sstorch.data.folds import split
from sstorch.exceptions import ConfigError, FormatError, TrainingError
from sstorch.files import JSON_NAME, checksum, read_folder, reading, write_folder
from sstorch.groups.validation import held_out_groups
from sstorch.metrics.evaluation import remedy_for_names
from sstorch.soft.batch import training_rows
from sstorch.soft.candidates import KINDS, checked, default_candidates, family_of
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.search import SCORINGS, FoldScores, Scorer, Scoring, score_on_folds, settled
from sstorch.threads import one_blas_thread

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
FORMAT_VERSION = 4
TREE_FOLDER = "tree"

Preference = Literal["groups", "accuracy"]
Evaluated = Mapping[str, FoldScores]


def _of_best(name: str) -> Any:
    """A method of the search that is that of ``best_estimator_``."""

    def method(self: PrognosticTreeCV, X: object, *args: Any, **options: Any) -> Any:
        return getattr(self._chosen, name)(X, *args, **options)

    method.__name__, method.__qualname__ = name, f"PrognosticTreeCV.{name}"
    method.__doc__ = "See the method of ``best_estimator_``."
    return method


class PrognosticTreeCV(FrameEstimator):
    """Model choice by cross-validation among a regression, groups, and gates trained on the outcomes.

    Each candidate is trained on all folds as one batch and scored on the held-out rows. The chosen model,
    ``best_estimator_``, is then trained on all rows. By default (``prefer``) the best groups are chosen,
    unless the best candidate is better by more than one standard error. ``predict*``, ``apply`` and ``score``
    are those of the chosen model.

    Penalties are estimated within each candidate; few candidates are needed. The default candidates are from
    ``experiments/accuracy``.

    Args:
        candidates: unfitted estimators by name, the simplest first: :class:`~sstorch.SurvivalRegression`,
            :class:`~sstorch.PrognosticTree`, :class:`~sstorch.SoftSurvivalTree`. None for
            :func:`~sstorch.default_candidates` of ``y``, seven as a rule.
        cv: folds, by subject, stratified by event or cause.
        scoring: score on the test folds: ``"log_likelihood"``, mean per row; ``"c_harrell"``, time-dependent
            concordance; ``"ibs"``, minus the integrated Brier score (``"ibs_graf"`` of
            :func:`~sstorch.metrics.evaluate`), with competing causes the mean over causes; or a scorer of
            scikit-learn, ``scorer(model, X, y)``, higher is better. ``"auto"`` is the log-likelihood, which
            has the smallest variance with few rows; with at most twelve distinct event times, such as whole
            years, it is ``"ibs"``, since likelihoods of different families are then not comparable.
        prefer: ``"groups"`` chooses the best groups, unless the best candidate is better by more than one
            standard error of the difference, paired by fold; ``"accuracy"`` chooses the best.
        nested: True scores the choice itself: it is repeated within the training rows of each fold, at a cost
            of as many searches as folds.
        device: ``"cpu"`` or a CUDA device such as ``"cuda"``; None for the device of each candidate.
        random_state: seed of folds, and of starts of the default candidates, an integer.
        verbose: 1 shows progress.
        time_unit: unit of the times, as in :class:`~sstorch.PrognosticTree`; None for the unit of each
            candidate.

    Attributes:
        best_estimator_: the chosen model, trained on all rows. ``group_validation_`` reports whether its
            groups differ on held-out rows, the rows that were also used for the choice; without it if
            a fold has no comparable pair.
        best_name_: name of the chosen candidate.
        best_score_: mean score of the chosen candidate over folds; optimistic, since it determined the
            choice.
        cv_results_: one row per candidate, by name: ``family`` (``"regression"``, ``"groups"``, ``"gates"``);
            ``mean_score`` over folds and its ``standard_error``; ``less_best``, the difference from the best
            candidate, and its standard error, paired by fold; ``c_harrell``, concordance of the curves, and
            ``c_groups``, concordance of the groups alone (:func:`~sstorch.metrics.concordance_of_groups`; nan
            without gates), means over folds, nan if a fold has no comparable pair; ``rank`` (the first of
            means equal to four decimals is better); ``chosen``; ``seconds``; and the score of each fold,
            ``fold_0`` ... (-inf if no start could be trained).
        score_name_: name of the score; ``"score"`` for a scorer of scikit-learn.
        nested_scores_: None, or with ``nested`` one row per fold: the ``candidate`` chosen on the training
            rows, and its ``score``, ``c_harrell`` and ``c_groups`` on the test rows.
        folds_: fold of each row.
        feature_names_in_, n_features_in_: of the chosen model.

    References:
        Varma and Simon (2006), "Bias in error estimation when using cross-validation for model selection",
        BMC Bioinformatics 7, 91.

    >>> from sstorch import PrognosticTree, SurvivalRegression, load_dataset
    >>> data = load_dataset("gbsg2")
    >>> search = PrognosticTreeCV({"one": SurvivalRegression(), "four": PrognosticTree()}, cv=2)
    >>> search = search.fit(data.frame, data.y)
    >>> search.cv_results_["c_groups"].round(1).to_dict()
    {'one': nan, 'four': 0.6}
    """

    best_estimator_: SoftEstimator
    best_name_: str
    best_score_: float
    score_name_: str
    cv_results_: pd.DataFrame
    nested_scores_: pd.DataFrame | None
    folds_: npt.NDArray[np.int64]

    def __init__(
        self,
        candidates: Mapping[str, SoftEstimator] | None = None,
        cv: int = 5,
        scoring: Scoring | Scorer = "auto",
        prefer: Preference = "groups",
        nested: bool = False,
        device: str | None = None,
        random_state: int = 0,
        verbose: int = 0,
        time_unit: str | None = None,
    ) -> None:
        self.candidates = candidates
        self.cv = cv
        self.scoring = scoring
        self.prefer = prefer
        self.nested = nested
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.time_unit = time_unit

    # ------------------------------------------------------------------ fit

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Choose a candidate and train it on all rows.

        Args:
            X: as for :meth:`SoftSurvivalTree.fit <sstorch.SoftSurvivalTree.fit>`.
            y: as for the same method, or :class:`~sstorch.Surv` with ``causes``; ``scoring="ibs"`` does not
                support left truncation.
            sample_weight: (n,), >= 0: sampling weights, as in :meth:`SoftSurvivalTree.fit
                <sstorch.SoftSurvivalTree.fit>`; scores are also weighted.

        Raises:
            DataError: the data are invalid, or there are too few events for the number of folds.
            ConfigError: a parameter has an invalid value.
            TrainingError: no candidate has a finite score.
        """
        return self._fit_data(training_rows(X, y, sample_weight))

    @one_blas_thread()
    def _fit_data(self, data: SurvivalData, schema: Schema | None = None) -> Self:
        """:meth:`fit` to rows of positive weight, whose schema is taken from them if None."""
        data = data.followed()
        candidates, scoring = self._compared(data), settled(self.scoring, data.y)
        self.folds_ = self._folds_of(data)  # of rows as they were given
        schema, folds = Schema.of(data.frame) if schema is None else schema, self._folds_of(data)
        found = self._evaluated(candidates, data, schema, scoring)
        table = self._table(candidates, found)
        self.nested_scores_ = None
        if self.nested:
            rows = []
            for k, fold in enumerate(split(data, folds)):
                name = _chosen(
                    self._table(candidates, self._evaluated(candidates, fold.train, schema, scoring))
                )
                own = found[name]
                rows.append((name, own.score[k], own.c_harrell[k], own.c_groups[k]))
            columns = ["candidate", "score", "c_harrell", "c_groups"]
            self.nested_scores_ = pd.DataFrame(rows, columns=columns).rename_axis("fold")
        name = _chosen(table)
        self.best_estimator_ = clone(candidates[name])._fit_data(data, schema)
        if np.isfinite(found[name].c_groups).all() and found[name].groups.max() > 1:
            self.best_estimator_.group_validation_ = held_out_groups(data, folds, found[name].groups)
        self.score_name_ = scoring if isinstance(scoring, str) else "score"
        return self._take_over(table)

    def _compared(self, data: SurvivalData | None = None) -> dict[str, SoftEstimator]:
        """Copies of the candidates for some rows, or for any, every parameter checked."""
        check_choice(self.prefer, "prefer", get_args(Preference))
        if self.scoring not in SCORINGS and not callable(self.scoring):
            raise ConfigError(
                f"scoring must be one of {', '.join(SCORINGS)}, or a scorer of scikit-learn, called with "
                f"(model, X, y), got {self.scoring!r}{remedy_for_names(self.scoring)}"
            )
        check_integer("cv", self.cv, 2)
        seed, given = check_integer("random_state", self.random_state, 0), self.candidates
        if given is None:
            given = default_candidates(None if data is None else data.y, random_state=seed)
        shared = {"device": self.device, "time_unit": self.time_unit}
        shared = {name: value for name, value in shared.items() if value is not None}
        checked(given, data)
        compared = {name: clone(each).set_params(**shared) for name, each in given.items()}
        checked(compared, None)
        return compared

    def _folds_of(self, data: SurvivalData) -> npt.NDArray[np.int64]:
        return folds_of(data, self.cv, self.random_state)

    def _evaluated(
        self,
        candidates: Mapping[str, SoftEstimator],
        data: SurvivalData,
        schema: Schema,
        scoring: str | Scorer,
    ) -> Evaluated:
        """Scores of every candidate on the folds of some rows."""
        given = data, self._folds_of(data), schema, scoring, bool(self.verbose)
        return {name: score_on_folds(each, *given) for name, each in candidates.items()}

    def _table(self, candidates: Mapping[str, SoftEstimator], found: Evaluated) -> pd.DataFrame:
        """``cv_results_``. Raises TrainingError: no candidate has a finite score."""
        folds = np.stack([each.score for each in found.values()])
        mean, root = folds.mean(axis=1), np.sqrt(folds.shape[1])
        order = np.argsort(-mean.round(4), kind="stable")
        if not np.isfinite(mean[order[0]]):
            raise TrainingError(
                "no candidate has a finite score on every fold; try another leaf, larger ridges or "
                "scoring='c_harrell'"
            )
        with np.errstate(invalid="ignore"):  # infinite scores
            difference = folds - folds[order[0]]
            table = pd.DataFrame(
                {
                    "family": [family_of(candidates[name]) for name in found],
                    "mean_score": mean,
                    "standard_error": folds.std(axis=1, ddof=1) / root,
                    "less_best": difference.mean(axis=1),
                    "less_best_standard_error": difference.std(axis=1, ddof=1) / root,
                    "c_harrell": [each.c_harrell.mean() for each in found.values()],
                    "c_groups": [each.c_groups.mean() for each in found.values()],
                    "rank": np.argsort(order) + 1,
                },
                index=pd.Index(list(found), name="candidate"),
            )
        table["chosen"] = table.index == self._choice(table)
        table["seconds"] = [each.seconds for each in found.values()]
        return table.assign(**{f"fold_{fold}": scores for fold, scores in enumerate(folds.T)})

    def _choice(self, table: pd.DataFrame) -> Any:
        """The name of the candidate that is chosen."""
        near = table[-table["less_best"] <= table["less_best_standard_error"]]
        groups = table[table["family"] == "groups"]
        if self.prefer == "groups" and len(groups):
            best = groups["rank"].idxmin()
            if best in near.index:
                return best
        return table["rank"].idxmin()

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

    predict = _of_best("predict")
    predict_survival_function = _of_best("predict_survival_function")
    predict_cumulative_hazard_function = _of_best("predict_cumulative_hazard_function")
    predict_hazard_function = _of_best("predict_hazard_function")
    predict_cumulative_incidence = _of_best("predict_cumulative_incidence")
    predict_quantile = _of_best("predict_quantile")
    predict_rmst = _of_best("predict_rmst")
    predict_leaf_proba = _of_best("predict_leaf_proba")
    apply = _of_best("apply")
    score = _of_best("score")

    # ------------------------------------------------------------------ read and keep

    def summary(self, details: bool = False) -> str:
        """Summarise the search as text: all candidates, the choice, optimistic scores, and the chosen model.

        Args:
            details: as in the method of the chosen model.
        """
        model = self._chosen
        return "\n\n".join([self._scores_text(), model.summary(details)])

    def _scores_text(self) -> str:
        """The candidates, a line for each, and how far their scores can be relied on."""
        rows: list[tuple[str, ...]] = [
            ("", self.score_name_, "less the best (error)", "concordance", "of groups alone")
        ]
        for name, row in self.cv_results_.iterrows():
            less = f"{row['less_best']:+.4f} ({row['less_best_standard_error']:.4f})"
            both = (row["c_harrell"], row["c_groups"])
            own = ("-" if np.isnan(value) else f"{value:.3f}" for value in both)
            rows.append((f"  {name}", f"{row['mean_score']:.4f}", less, *own))
        widths = [max(len(row[place]) for row in rows) for place in range(5)]
        marks = ["", *("  <- chosen" if chosen else "" for chosen in self.cv_results_["chosen"])]
        n_folds = sum(str(name).startswith("fold_") for name in self.cv_results_)
        lines = [f"{len(self.cv_results_)} candidates on the test rows of {n_folds} folds"] + [
            "  ".join([row[0].ljust(widths[0]), *(row[place].rjust(widths[place]) for place in range(1, 5))])
            + mark
            for row, mark in zip(rows, marks, strict=True)
        ]
        several, nested = len(self.cv_results_) > 1, self.nested_scores_
        if several and self.cv_results_["family"][self.best_name_] == "regression":
            lines.append("No gate is better on held-out rows: this is a regression, one group.")
        if nested is not None:
            score, chosen = nested["score"].to_numpy(), Counter(nested["candidate"])
            error = score.std(ddof=1) / np.sqrt(len(score))
            names = "; ".join(f"{n} times {each}" for each, n in chosen.most_common())
            lines.append(
                "The choice, repeated without the test rows of each fold, scores "
                f"{score.mean():.4f} (standard error {error:.4f}), concordance "
                f"{nested['c_harrell'].to_numpy().mean():.3f}. It is {names}."
            )
        if several:
            lines.append(
                "Scores of the chosen model, and the validation of its groups, are optimistic: it was chosen "
                "by these rows." + " nested=True scores the choice itself." * (nested is None)
            )
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        """Write the tables of the search and the chosen model to a folder, without pickle.

        Raises:
            ConfigError: the folder cannot be written, or a leaf is not registered.
        """
        folder, model = Path(path), self._chosen
        model.save(folder / TREE_FOLDER)
        nested = self.nested_scores_
        state = {
            "score": self.score_name_,
            "kind": next(each.__name__ for each in KINDS if isinstance(model, each)),
            "cv_results": self.cv_results_.to_csv(),  # scores can be infinite, which JSON is not made for
            "nested_scores": None if nested is None else nested.to_csv(),
            "tree_sha256": _tree_checksum(folder),
        }
        write_folder(folder, FORMAT, FORMAT_VERSION, state, {"folds_": torch.as_tensor(self.folds_)})

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> Self:
        """Load a search from the folder of :meth:`save`, with the model on the given device.

        The folder contains the model, the tables and the choice, but not the parameters of the search.

        Raises:
            FormatError: files are missing, altered, of different searches or of an unknown format version.
            ConfigError: torch does not see the device.
        """
        folder = Path(path)
        state, tensors = read_folder(folder, FORMAT, FORMAT_VERSION)
        with reading(folder):
            if _tree_checksum(folder) != state["tree_sha256"]:
                raise FormatError(f"{folder / TREE_FOLDER} is the tree of another search")
            kind = next(each for each in KINDS if each.__name__ == state["kind"])
            search = cls()
            search.score_name_ = str(state["score"])
            search.folds_ = tensors["folds_"].numpy()
            results, nested = _read(state["cv_results"], "candidate"), state["nested_scores"]
            search.nested_scores_ = None if nested is None else _read(nested, "fold")
        search.best_estimator_ = kind.load(folder / TREE_FOLDER, device)
        return search._take_over(results)

    # ------------------------------------------------------------------ internals

    def _take_over(self, table: pd.DataFrame) -> Self:
        """Take over a table of candidates, and what scikit-learn reads of a fitted estimator."""
        self.cv_results_, self.best_name_ = table, _chosen(table)
        self.best_score_ = float(table["mean_score"][self.best_name_])
        for name in ("feature_names_in_", "n_features_in_"):
            setattr(self, name, getattr(self.best_estimator_, name))
        return self


def _chosen(table: pd.DataFrame) -> str:
    """Name of the candidate that a table has chosen."""
    name: str = table.index[table["chosen"]].item()
    return name


def _read(text: str, index: str) -> pd.DataFrame:
    """A table from what ``to_csv`` made of it."""
    kept: dict[str, Any] = {"float_precision": "round_trip", "na_values": [""], "keep_default_na": False}
    table: pd.DataFrame = pd.read_csv(StringIO(text), dtype={"candidate": str}, **kept)
    return table.set_index(index)


def _tree_checksum(folder: Path) -> str:
    """Of the tree's JSON, which names the checksum of its tensors."""
    return checksum((folder / TREE_FOLDER / JSON_NAME).read_bytes())
