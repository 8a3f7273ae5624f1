"""The registry and its recipes."""

import pytest

from sstorch.data import Preprocessor, Schema, list_datasets, load_dataset
from sstorch.exceptions import ConfigError


def test_gbsg2_is_as_published():
    data = load_dataset("gbsg2")
    assert (len(data), len(data.feature_names), data.n_events, data.n_moved) == (686, 8, 299, 0)
    assert (data.time.min(), data.time.max()) == (8.0, 2659.0)
    assert set(data.feature_names).isdisjoint({"time", "cens"})
    assert list(data.frame["tgrade"].cat.categories) == ["I", "II", "III"]
    assert not data.frame.isna().to_numpy().any()


def test_gbsg2_encodes_to_twelve_features():
    data = load_dataset("gbsg2")
    out = Preprocessor(Schema.of(data.frame)).fit(data.frame).transform(data.frame)
    assert out.shape == (686, 12)
    assert (out.min(), out.max()) == (0.0, 1.0)


def test_list_states_what_loading_gives():
    table = list_datasets().set_index("name")
    assert list(table.columns) == ["N", "p", "events", "censoring", "source", "notes"]
    data = load_dataset("gbsg2")
    row = table.loc["gbsg2"]
    assert (row["N"], row["p"], row["events"]) == (len(data), len(data.feature_names), data.n_events)
    assert round(row["censoring"], 2) == 56.41
    assert table.loc["csv", ["N", "p", "events", "censoring"]].isna().all()


def test_unknown_names_and_options():
    with pytest.raises(
        ConfigError, match=r"no data set 'gbsg'; there are 'gbsg2', 'csv'\. Did you mean 'gbsg2'\?"
    ):
        load_dataset("gbsg")
    with pytest.raises(ConfigError, match=r"data set 'gbsg2': .*'fold'; its options are none"):
        load_dataset("gbsg2", fold=1)
    with pytest.raises(
        ConfigError, match=r"data set 'csv': missing a required argument: 'path'; .*'path', 'time'"
    ):
        load_dataset("csv")
