"""Data: the gate for features, times and events, preprocessing, data sets and folds."""

from sstorch.data.columns import Schema
from sstorch.data.datasets import list_datasets, load_dataset
from sstorch.data.files import read_file
from sstorch.data.folds import folds_of, stratified_folds
from sstorch.data.preprocessing import Preprocessor
from sstorch.data.surv import Surv
from sstorch.data.survival_data import SurvivalData

__all__ = [
    "Preprocessor",
    "Schema",
    "Surv",
    "SurvivalData",
    "folds_of",
    "list_datasets",
    "load_dataset",
    "read_file",
    "stratified_folds",
]
