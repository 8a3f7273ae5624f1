"""Callbacks of a run: history files and TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from sstorch.files import write_whole
from sstorch.monitoring import Callback, History

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch.utils.tensorboard.writer import SummaryWriter

    from sstorch.soft.group_choice import GroupChoice


class HistoryWriter(Callback):
    """Rewrite the history files after every macro iteration, so that a run cut short leaves its records.

    ``steps.parquet`` and ``macro_iterations.parquet`` are moved into place when whole, so that they can be
    read at any moment.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        """Write what there is so far."""
        self._folder.mkdir(parents=True, exist_ok=True)
        tables = {"steps": history.steps, "macro_iterations": history.macro_iterations}
        for name, table in tables.items():
            write_whole(self._folder / f"{name}.parquet", table.to_parquet(index=False))


class TensorBoardLogger(Callback):
    """One TensorBoard run per split of the data, each scalar a mean over the split's starts.

    Scalars by macro iteration: ``train/objective`` and ``train/best_objective``,
    ``node/<id>/<step>/objective`` after each BN, LN or WLR step, ``node/<id>/left_share`` and
    ``leaf/<id>/mass``. Where penalties are estimated there are no iterations, and one scalar of each instead:
    ``evidence/<candidate>``, ``edf/<kind>`` and ``sd/<kind>``, of competing causes ``edf/<cause>/<kind>``.
    `names` are those of the splits in the order of the batch, with `n_starts` problems each.
    """

    def __init__(self, folder: Path, names: Sequence[str], n_starts: int) -> None:
        # Loading TensorBoard takes a second, which training without it need not wait for.
        from torch.utils.tensorboard.writer import SummaryWriter

        self._names = tuple(names)
        # A writer whose queue was interrupted waits for its next flush before it can be closed.
        self._writers = {name: SummaryWriter(str(folder / name), flush_secs=5) for name in names}
        self._n_starts = n_starts

    def on_macro_iteration(self, macro_iteration: int, history: History) -> None:
        """Write the scalars of the macro iteration that ended."""
        newest = history.last_macro_iteration()
        masses = [name for name in map(str, newest) if name.startswith("mass_")]
        for writer, rows in self._by_split(newest[newest["macro_iteration"] == macro_iteration]):
            writer.add_scalar("train/objective", rows["objective"].mean(), macro_iteration)
            writer.add_scalar("train/best_objective", rows["best_objective"].mean(), macro_iteration)
            for name in masses:
                leaf = name.removeprefix("mass_")
                writer.add_scalar(f"leaf/{leaf}/mass", rows[name].mean(), macro_iteration)
        steps = history.last_steps(macro_iteration)
        steps = steps[(steps["macro_iteration"] == macro_iteration) & (steps["step"] != "SKIP")]
        for writer, rows in self._by_split(steps):
            tags = "node/" + rows["node"].astype(str) + "/" + rows["step"] + "/objective"
            for tag, value in rows["objective_after"].groupby(tags).mean().items():
                writer.add_scalar(str(tag), value, macro_iteration)
            gates = rows[rows["step"] != "LN"]
            for node, value in gates.groupby("node")["left_share"].mean().items():
                writer.add_scalar(f"node/{node!s}/left_share", value, macro_iteration)
        for writer in self._writers.values():
            writer.flush()

    def log_choice(self, name: str, choice: GroupChoice) -> None:
        """Write evidence, effective degrees of freedom and deviations of priors of the split ``name``."""
        values = {f"evidence/{candidate}": value for candidate, value in choice.evidence.items()}
        for cause, each in choice.estimations.items():
            of_cause = f"{cause}/" if len(choice.estimations) > 1 else ""
            for kind, freedom, deviation in zip(each.kinds, each.freedom, each.deviation, strict=True):
                values |= {f"edf/{of_cause}{kind}": freedom, f"sd/{of_cause}{kind}": deviation}
        for tag, value in values.items():
            self._writers[name].add_scalar(tag, value)

    def log_text(self, tag: str, text: str) -> None:
        """Write a text into every run, shown verbatim."""
        for writer in self._writers.values():
            writer.add_text(tag, "\n".join(f"    {line}" for line in text.splitlines()))

    def log_figure(self, name: str, tag: str, figure: Figure) -> None:
        """Write a figure into the run of the split ``name``."""
        self._writers[name].add_figure(tag, figure, close=False)

    def log_hparams(
        self, name: str, settings: Mapping[str, bool | str | float | int], scores: Mapping[str, float]
    ) -> None:
        """Write settings and final scores of the split ``name`` for the HPARAMS page."""
        prefixed = {f"final/{score}": value for score, value in scores.items()}
        self._writers[name].add_hparams(dict(settings), prefixed, run_name=".")

    def close(self) -> None:
        """Write what is buffered and close the files."""
        for writer in self._writers.values():
            writer.close()

    def _by_split(self, rows: pd.DataFrame) -> list[tuple[SummaryWriter, pd.DataFrame]]:
        split = rows["problem"] // self._n_starts
        return [(self._writers[self._names[int(k)]], part) for k, part in rows.groupby(split)]
