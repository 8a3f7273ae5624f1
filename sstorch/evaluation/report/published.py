"""The published tables of the soft survival trees, and results beside them.

``published.csv`` holds the means and standard deviations of section 5.2 and of appendices D.1 and D.2 of
Consolo, Amaldi and Carrizosa, "Soft decision trees for survival analysis": 15 data sets, six soft trees at
depths 1 and 2, SkSurv, RPART and CTree at depths 2 to 5, means over 5 folds x 20 starts.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import pandas as pd

from sstorch.evaluation.report.measures import measure
from sstorch.evaluation.report.models import Model

SOURCE = "Consolo, Amaldi and Carrizosa, “Soft decision trees for survival analysis”"

# Their published integrated Brier scores lie below what any calibrated model can reach.
NOT_COMPARABLE = frozenset({"sst_po", "sst_ph"})
WHY_NOT_COMPARABLE = (
    "The published IBS of PO and PH are not comparable: they lie below what any calibrated model can "
    "reach, for instance .033 on Aids2, where Kaplan-Meier scores .138 to .147 by convention and no model "
    "discriminates."
)


@cache
def published_tables() -> pd.DataFrame:
    """The published tables in long form.

    Returns:
        Columns split, metric, model, depth, dataset, mean, std (NaN where none was given) and source, a row a
        value. The metric is c_harrell, c_uno, cd_auc or ibs; the last is our ``ibs_graf``.
    """
    with (files("sstorch.evaluation.report") / "published.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


@cache
def published_datasets() -> tuple[str, ...]:
    """Names of the data sets of the published tables, sorted."""
    return tuple(sorted(set(published_tables()["dataset"])))


@cache
def published_means(metric: str, part: str = "test") -> pd.DataFrame:
    """Published means of a metric.

    Args:
        metric: its name here, such as "ibs_graf".
        part: "test" or "train".

    Returns:
        A row a data set, a column a model (its key); empty if the metric was not published.
    """
    table = published_tables()
    own = table[(table["metric"] == measure(metric).published) & (table["split"] == part)]
    keys = [Model(name, int(depth)).key for name, depth in zip(own["model"], own["depth"], strict=True)]
    return own.assign(key=keys).pivot(index="dataset", columns="key", values="mean")


def is_comparable(metric: str, model: Model) -> bool:
    """Whether published and own values of a metric measure the same thing."""
    return not (measure(metric).published == "ibs" and model.counterpart.name in NOT_COMPARABLE)
