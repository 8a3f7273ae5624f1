"""Studies of several parts, each of which makes one table."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import torch

from sstorch.exceptions import DataWarning


def run_part(
    parser: argparse.ArgumentParser,
    parts: Mapping[str, Callable[[argparse.Namespace], pd.DataFrame]],
    folder: Path,
    float_format: str,
) -> None:
    """Make the table of the part that the command line names, by one thread, and write it to PART.csv."""
    parser.add_argument("part", choices=parts)
    parser.add_argument("--append", action="store_true", help="keep the rows of the file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DataWarning)
    table = parts[options.part](options)
    file = folder / f"{options.part}.csv"
    if options.append and file.exists():
        table = pd.concat([pd.read_csv(file), table])
    table.to_csv(file, index=False, float_format=float_format)
