"""Data: the gate for features, times and events, preprocessing, data sets and folds."""

from sstorch.data.datasets import list_datasets, load_dataset
from sstorch.data.files import load_file, read_file
from sstorch.data.folds import Fold, folds_of, stratified_folds
from sstorch.data.outcomes import as_surv, outcome_of
from sstorch.data.preprocessing import Preprocessor
from sstorch.data.schema import Schema
from sstorch.data.surv import OutcomeType, Surv
from sstorch.data.survival_data import SurvivalData

__all__ = [
    "Fold",
    "OutcomeType",
    "Preprocessor",
    "Schema",
    "Surv",
    "SurvivalData",
    "as_surv",
    "folds_of",
    "list_datasets",
    "load_dataset",
    "load_file",
    "outcome_of",
    "read_file",
    "stratified_folds",
]
