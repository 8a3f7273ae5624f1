"""Data: the gate for features, times and events, preprocessing, data sets and folds."""

from sstorch.data.datasets import list_datasets, load_dataset
from sstorch.data.files import load_file
from sstorch.data.folds import stratified_folds
from sstorch.data.groups import Groups, parse_groups
from sstorch.data.preprocessing import Preprocessor
from sstorch.data.schema import Schema
from sstorch.data.survival_data import SurvivalData
from sstorch.data.target import parse_target

__all__ = [
    "Groups",
    "Preprocessor",
    "Schema",
    "SurvivalData",
    "list_datasets",
    "load_dataset",
    "load_file",
    "parse_groups",
    "parse_target",
    "stratified_folds",
]
