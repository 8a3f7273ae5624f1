"""Data: the gate for features, times and events, preprocessing, data sets and folds."""

from sstorch.data.causes import Causes, parse_causes
from sstorch.data.datasets import list_datasets, load_dataset, load_file
from sstorch.data.intervals import Intervals, interval
from sstorch.data.preprocessing import Preprocessor, Schema
from sstorch.data.survival_data import SurvivalData, stratified_folds
from sstorch.data.target import Groups, parse_groups, parse_target

__all__ = [
    "Causes",
    "Groups",
    "Intervals",
    "Preprocessor",
    "Schema",
    "SurvivalData",
    "interval",
    "list_datasets",
    "load_dataset",
    "load_file",
    "parse_causes",
    "parse_groups",
    "parse_target",
    "stratified_folds",
]
