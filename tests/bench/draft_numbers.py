"""The numbers of a draft of a paper by section, and the values of the run that each may be a rounding of."""

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from lifelines import KaplanMeierFitter
from lifelines.utils import median_survival_times
from scipy import stats

from sstorch import SurvivalData, metrics
from sstorch.bench.paper.tables import hazard_ratios
from sstorch.bench.report.characteristics import standardised_difference
from sstorch.bench.report.run import Run
from sstorch.document import Block, Bullets, Code, Paragraph, Picture, Section, Table
from sstorch.groups import group_table
from sstorch.groups.table import usual_horizons
from sstorch.metrics.follow_up import median_follow_up

MINUS = "\N{MINUS SIGN}"
_NUMBER = re.compile(rf"(?<![\w.])[+{MINUS}-]?(?:\d+(?:\.\d+)*|\.\d+)(?!\w)")
# Years of citations, what authors write, numbers of tables and figures, and the confidence level.
_NO_RESULT = re.compile(r"\([^()]*\b(?:19|20)\d\d\)|\[to be completed:[^]]*\]|(?:Table|Figure) \d+|\b95 %")


def numbers(text: str) -> list[str]:
    """The numbers of a text, a minus as ``-`` and without a plus."""
    return [each.replace(MINUS, "-").lstrip("+") for each in _NUMBER.findall(_NO_RESULT.sub(" ", text))]


def texts(block: Block) -> Iterator[str]:
    """All texts of a block: of sections their blocks, of tables captions, headers and cells."""
    if isinstance(block, Section):
        yield block.title
        for inner in block.blocks:
            yield from texts(inner)
    elif isinstance(block, Bullets):
        yield from block.items
    elif isinstance(block, Table):
        yield from (block.caption, *block.header)
        yield from (part for row in block.rows for cell in row for part in (cell.text, cell.note))
    elif isinstance(block, Picture):
        yield block.caption
    else:
        assert isinstance(block, Paragraph | Code)
        yield block.text


class Known:
    """Numbers that a text may have: as they are written in files, and values to the decimals of the text."""

    def __init__(self, written: str, values: list[float]) -> None:
        self.written, self.values = set(numbers(written)), np.array(values, dtype=np.float64)

    def has(self, text: str) -> bool:
        """Whether a number is written like this, or a value to as many decimals is this number."""
        if text in self.written or text.count(".") > 1:
            return text in self.written
        # A value in the middle of two numbers may be rounded to either.
        unit = 10.0 ** -len(text.partition(".")[2])
        return bool((np.abs(self.values - float(text)) <= (0.5 + 1e-9) * unit).any())


def known(run: Run, folder: Path) -> dict[str, Known]:
    """What the sections with results may have, from files and data of the run and by other packages."""
    tree = (folder / "tree.txt").read_text(encoding="utf-8")
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    size = [run.data.n_subjects, len(run.data), len(run.data.joined()), run.data.n_events]
    return {
        "Methods": Known(f"{config} {run.status['versions']}", [*size, *_of_methods(run, folder)]),
        "Participants": Known("", [*size, *_of_follow_up(run.data), *_of_characteristics(run)]),
        "The model and its groups": Known(tree, _of_groups(run)),
        "Performance in held-out rows": Known("", _of_scores(pd.read_csv(folder / "peers.csv"))),
        "Calibration in held-out rows": Known("", _of_calibration(run, pd.read_csv(folder / "held_out.csv"))),
        "Supplement: the model": Known(tree, []),
    }


def _of_methods(run: Run, folder: Path) -> list[float]:
    frame = run.data.frame
    penalties, evidence = (pd.read_csv(folder / f"{name}.csv") for name in ("penalties", "evidence"))
    penalties = penalties[penalties["split"] == "all-rows"]
    causes = penalties.groupby("cause") if "cause" in penalties else [("", penalties)]
    encoded = [
        one.loc[one["kind"].isin(["line", "curve", "category"]), "coefficients"].sum() for _, one in causes
    ]
    return [
        *frame.isna().sum(),
        frame.notna().all(axis=1).sum(),
        np.count_nonzero(run.data.entry),
        *encoded,
        *(one["edf"].sum() for _, one in causes),
        *evidence.loc[evidence["split"] == "all-rows", "gain"],
        100 * run.model.min_leaf,
        run.model.gate_features,
    ]


def _of_follow_up(data: SurvivalData) -> list[float]:
    fitter = KaplanMeierFitter().fit(data.time, data.event, entry=data.entry if data.entry.any() else None)
    limits = median_survival_times(fitter.confidence_interval_).iloc[0]
    found = median_follow_up(data.weighted_y.any_cause())  # compared with lifelines by another test
    return [fitter.median_survival_time_, *limits, found.value, found.lower, found.upper]


def _of_characteristics(run: Run) -> list[float]:
    frame, group = run.data.frame, pd.Series(run.model.apply(run.data.frame))
    if run.data.time_varying:
        first = ~pd.Series(run.data.subject).duplicated()
        frame, group = frame[first].reset_index(drop=True), group[first].reset_index(drop=True)
    parts = [frame, *(part for _, part in frame.groupby(group))]
    found = [*map(len, parts), *range(1, len(parts)), *frame.isna().sum()]
    for name in frame:
        if isinstance(frame[name].dtype, pd.CategoricalDtype) or frame[name].nunique() == 2:
            counts = [part[name].value_counts() for part in parts]
            found += [v for each in counts for v in (*each, *(100 * each / each.sum()))]
            found += [float(word) for word in frame[name].dropna().unique() if str(word).isdigit()]
        else:
            found += [v for part in parts for v in part[name].quantile([0.25, 0.5, 0.75])]
        found.append(max(standardised_difference(a[name], b[name]) for a, b in combinations(parts[1:], 2)))
    return found


def _of_groups(run: Run) -> list[float]:
    data, times = run.data, usual_horizons(run.model)
    table = group_table(run.model, data.frame, data.y, horizons=times)
    rows = data.joined()
    ratios = hazard_ratios(rows, run.model.apply(rows.frame))
    return [
        *times,
        *table.index,
        *table.to_numpy(float).ravel(),
        *([] if ratios is None else ratios.to_numpy().ravel()),
    ]


def _of_scores(peers: pd.DataFrame) -> list[float]:
    found = [float(peers["fold"].nunique())]
    for score in peers.columns[2:]:
        table = peers.pivot(index="fold", columns="model", values=score)
        for values in (table, table.rsub(table["tree"], axis=0)):
            k = values.notna().sum()
            half = stats.t.ppf(0.975, k - 1) * np.sqrt((1 / k + 1 / (k - 1)) * values.var())
            found += [*values.mean(), *(values.mean() - half), *(values.mean() + half)]
    return found


def _of_calibration(run: Run, held_out: pd.DataFrame) -> list[float]:
    data, found = run.data, []
    for name in held_out.columns[3:]:
        curve, _, cause = name.partition(":")
        time = float(curve[2:-1])
        found += [time, held_out[name].mean()]
        if cause:
            events = np.unique(data.time[data.cause > 0])
            at_risk = (data.time >= events[:, None]).sum(1)
            of_any, own = (
                ((data.time == events[:, None]) & chosen).sum(1) / at_risk
                for chosen in (data.cause > 0, data.cause == data.causes.number(cause))
            )
            before = np.cumprod(np.append(1.0, 1.0 - of_any[:-1]))
            found.append((before * own)[events <= time].sum())
        elif not data.entry.any():
            found.append(KaplanMeierFitter().fit(data.time, data.event).predict(time))
            predicted = held_out[name].to_numpy()
            found.append(metrics.integrated_calibration_index(data.y, predicted, t=time))
    return found
