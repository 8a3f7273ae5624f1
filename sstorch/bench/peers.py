"""Reference models on the folds of a run: one curve for all rows, other estimators, and Cox."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial

import pandas as pd

from sstorch.bench.baselines import make_baseline
from sstorch.bench.baselines.base import Curves
from sstorch.bench.cross_validation import CrossValidation
from sstorch.bench.scores import LIKELIHOOD, score_predictor, scores_of
from sstorch.bench.study_model import BaselineModel, SoftTreeModel, StudyModel
from sstorch.data import Fold, Schema, SurvivalData
from sstorch.data.folds import split
from sstorch.exceptions import DataError, DataWarning, TrainingError
from sstorch.metrics.registry import names_of
from sstorch.metrics.scored import PredictsIncidence
from sstorch.optim.checkpoint import Checkpoint, kept
from sstorch.progress import report, silenced

# Of the scores of a study those that describe one run best, the likelihood last.
SCORES = (*names_of("event", "peers"), LIKELIHOOD)
TREE, KAPLAN_MEIER, COX = "tree", "Kaplan-Meier", "Cox"
AALEN_JOHANSEN, CAUSE_COX = "Aalen-Johansen", "cause-specific Cox"  # of competing causes
# Rows times features above which dense columns take minutes and gigabytes: there is no Cox regression then.
MOST_NUMBERS = 20_000_000


def score_run(
    result: CrossValidation,
    data: SurvivalData,
    checkpoint: Checkpoint | None = None,
    peers: Sequence[StudyModel] = (),
) -> pd.DataFrame:
    """Scores of reference models and, last, of the chosen trees of a run on the test rows of each fold.

    Reference models are Kaplan-Meier, `peers`, and Cox. Columns are ``model``, ``fold`` and the scores of the
    outcome; nan if one is not defined, such as the likelihood of step functions. A model that cannot be
    fitted outside some fold has no row there. A checkpoint, held, keeps the scores of each model.
    """
    data, causes = data.counted(), data.causes is not None
    schema, parts, rows = Schema.of(data.frame), split(data, result.folds), list[dict[str, object]]()
    width = sum(len(schema.categories.get(name, ("",))) for name in schema.inputs)
    first = BaselineModel(AALEN_JOHANSEN if causes else KAPLAN_MEIER, make_baseline("kaplan_meier"), 0)
    models = [first, *peers]
    if width * len(data) <= MOST_NUMBERS:
        models.append(BaselineModel(CAUSE_COX if causes else COX, make_baseline("cox_lifelines"), 0))

    def fits(model: StudyModel) -> Iterator[tuple[Fold, Curves | PredictsIncidence]]:
        # Soft trees of all folds are one batch.
        together = [parts] if isinstance(model, SoftTreeModel) else [[fold] for fold in parts]
        for folds in together:
            try:
                for fit in model.fits([fold.train for fold in folds], schema, "cpu"):
                    if fit.chosen:
                        yield folds[fit.fold], fit.predictor
            except (DataError, TrainingError) as error:
                which = f"fold {folds[0].number}" if len(folds) == 1 else "a fold"
                text = f"{model.name} could not be fitted outside {which} and is not scored there: {error}"
                warnings.warn(text, DataWarning, stacklevel=4)

    def score(name: str, fold: Fold, model: Curves | PredictsIncidence) -> dict[str, object]:
        found = score_predictor(model, fold.test, fold.train, names=SCORES[:-1])
        values = {score: found[score].value for score in scores_of(fold.test, SCORES)}
        return {"model": name, "fold": fold.number, **values}

    def scored(model: StudyModel) -> list[dict[str, object]]:
        with silenced():
            return [score(model.name, fold, fitted) for fold, fitted in fits(model)]

    for number, model in enumerate(models):
        report("reference models", number, len(models))
        rows += kept(checkpoint, f"reference models/{model.name}", partial(scored, model))
    rows += [score(TREE, fold, tree) for fold, tree in zip(parts, result.trees, strict=True)]
    return pd.DataFrame(rows, columns=["model", "fold", *scores_of(data, SCORES)])


def peer_table(scores: pd.DataFrame) -> pd.DataFrame:
    """Mean over folds of each score, by model, in the order of the rows, with the number of ``folds``."""
    grouped = scores.groupby("model", sort=False)
    names = [name for name in scores if name not in ("model", "fold")]
    return grouped[names].mean().assign(folds=grouped.size())
