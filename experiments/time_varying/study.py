"""Trees of subjects with time-varying covariates, beside Cox's model with time-varying columns.

python experiments/time_varying/study.py

Five folds by subject, seed 0. Models are judged by the hazards of the rows at risk together at each event of
held-out subjects: how often the one with the event had the larger (concordance), and its share of their sum
(the partial log-likelihood of an event, after Cox). So a model may change its mind about a subject from row
to row.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from lifelines import CoxTimeVaryingFitter

from sstorch import PrognosticTree, load_dataset
from sstorch.data import Preprocessor, Schema, SurvivalData, stratified_folds
from sstorch.exceptions import DataWarning
from sstorch.reading import leaf_table

# Log hazards of rows at a time, up to a constant.
Hazard = Callable[[pd.DataFrame, float], np.ndarray]


def tree(depth: int, leaf: str = "log_logistic") -> Callable[[SurvivalData, Schema], tuple[Hazard, int]]:
    def fit(data: SurvivalData, schema: Schema) -> tuple[Hazard, int]:
        model = PrognosticTree(depth=depth, leaf=leaf)
        model._fit_data(data, schema)
        with np.errstate(divide="ignore"):
            return (
                lambda rows, at: np.log(model.predict_hazard_function(rows, [at])[:, 0]),
                int((leaf_table(model)["rows"] > 0).sum()),
            )

    return fit


def cox(data: SurvivalData, schema: Schema) -> tuple[Hazard, int]:
    preprocessor = Preprocessor(schema).fit(data.frame)

    def columns(rows: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(preprocessor.transform(rows)).add_prefix("x")

    frame = columns(data.frame).assign(
        id=data.subject, start=data.entry, stop=data.time, event=data.event.astype(int)
    )
    model = CoxTimeVaryingFitter(penalizer=0.01).fit(
        frame, id_col="id", event_col="event", start_col="start", stop_col="stop"
    )
    return lambda rows, at: model.predict_log_partial_hazard(columns(rows)).to_numpy(), 0


MODELS = {
    "tree": tree(2),
    "tree, spline_ph": tree(2, "spline_ph"),
    "regression": tree(0),
    "regression, spline_ph": tree(0, "spline_ph"),
    "Cox": cox,
}


def judged(hazard: Hazard, data: SurvivalData) -> tuple[float, float, float]:
    """Concordant pairs, all pairs, and the sum of partial log-likelihoods."""
    concordant, pairs, likelihood = 0.0, 0, 0.0
    for at in np.unique(data.time[data.event]):
        inside = (data.entry < at) & (at <= data.time)
        score = hazard(data.frame[inside], float(at))
        had = (data.event & (data.time == at))[inside]
        for own in score[had]:
            others = score[~had]
            concordant += (own > others).sum() + 0.5 * (own == others).sum()
            pairs += len(others)
        likelihood += score[had].sum() - had.sum() * np.logaddexp.reduce(score)
    return concordant, pairs, likelihood


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DataWarning)
    rows = []
    for name in ("heart", "pbcseq", "rossi", "cgd"):
        data = load_dataset(name)
        schema = Schema.of(data.frame)
        folds = stratified_folds(data.event, 5, 0, data.subject)
        for model, fit in MODELS.items():
            totals, leaves, seconds = np.zeros(3), [], 0.0
            for fold in range(5):
                start = time.process_time()
                hazard, count = fit(data.subset(folds != fold), schema)
                seconds += time.process_time() - start
                leaves.append(count)
                totals += judged(hazard, data.subset(folds == fold))
            rows.append(
                {
                    "data": name,
                    "model": model,
                    "C": totals[0] / totals[1],
                    "partial log-likelihood": totals[2] / data.n_events,
                    "leaves": np.mean(leaves) or np.nan,
                    "CPU s": seconds / 5,
                }
            )
            print(pd.DataFrame(rows[-1:]).to_string(header=False, index=False), flush=True)
    print(pd.DataFrame(rows).round(4).to_string(index=False))


if __name__ == "__main__":
    main()
