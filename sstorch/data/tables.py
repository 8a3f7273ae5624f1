"""Tables from files of any kind, as they stand there."""

import os
from collections.abc import Collection, Iterable
from pathlib import Path

import pandas as pd
from pandas.api import types as pdt

from sstorch.checks import check_unique
from sstorch.data import formats
from sstorch.data.columns import set_missing
from sstorch.data.table import Table
from sstorch.data.text_files import MISSING, read_text
from sstorch.exceptions import DataError

_TEXTS = tuple(f"{ending}{packed}" for ending in (".csv", ".tsv", ".txt") for packed in ("", ".gz"))


def read_table(
    source: str | os.PathLike[str],
    *,
    sep: str | None = None,
    missing: Iterable[object] = (),
    decimal: str | None = None,
    encoding: str | None = None,
    table: str | None = None,
    texts: Collection[str] = (),
) -> Table:
    """Read the rows of a file or of a database, at least one, as `load_file` does with these options.

    Blanks around texts are cut off. In a text file the columns named in `texts` stay text.
    """
    codes, file = list(missing), Path(source).expanduser()
    if formats.URL.match(str(source)):
        read = formats.read_database(str(source), table)
    elif not file.is_file():
        raise DataError("a folder, not a file" if file.is_dir() else "no such file")
    elif file.name.lower().endswith(_TEXTS):
        read = read_text(file, sep, [str(code) for code in codes], decimal, encoding, texts)
    elif file.suffix.lower() in formats.DATABASES:
        read = formats.read_database(f"{formats.DATABASES[file.suffix.lower()]}:///{file}", table)
    elif file.suffix.lower() in formats.SUFFIXES:
        read = formats.read_typed(file, table)
    else:
        raise DataError(f"unknown kind of file; readable are {', '.join((*_TEXTS, *formats.SUFFIXES))}")
    if len(read.frame) == 0:
        raise DataError("the file has no rows below its header")
    check_unique([str(name) for name in read.frame.columns])
    frame = set_missing(_stripped(read.frame, read.line == "line", texts), codes)
    return Table(frame, read.lines, read.line, read.found)


def _stripped(frame: pd.DataFrame, of_text: bool, texts: Collection[str]) -> pd.DataFrame:
    """Texts without blanks around them; those that are empty then, and in a text file others, are missing.

    What then are numbers in a text file becomes numbers, but in `texts`.
    """
    frame, missing = frame.copy(deep=False), MISSING if of_text else ("",)
    for place, kind in enumerate(frame.dtypes):
        column = frame.iloc[:, place]
        if isinstance(kind, pd.CategoricalDtype):
            words = {word: word.strip() if isinstance(word, str) else word for word in kind.categories}
            if any(word != cut or cut in missing for word, cut in words.items()):
                left = [cut for cut in dict.fromkeys(words.values()) if cut not in missing]
                frame.isetitem(place, pd.Categorical(column.astype(object).map(words), categories=left))
        elif pdt.is_object_dtype(kind) or isinstance(kind, pd.StringDtype):
            cut = column.map(lambda cell: cell.strip() if isinstance(cell, str) else cell)
            empty = cut.isin(missing)
            if not empty.any() and bool((cut == column)[column.notna()].all()):
                continue
            cut = cut.mask(empty)
            number = pd.to_numeric(cut, errors="coerce")
            whole = of_text and frame.columns[place] not in texts and number.notna().equals(cut.notna())
            frame.isetitem(place, (number if whole else cut).array)
    return frame
