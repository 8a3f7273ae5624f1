"""History files of a run, and what it writes for TensorBoard in addition to the training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sstorch.files import write_whole
from sstorch.monitoring import Callback, History

if TYPE_CHECKING:
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


def write_choice(writer: SummaryWriter, choice: GroupChoice) -> None:
    """Write evidence, effective degrees of freedom and prior standard deviations of estimated penalties.

    The scalars are ``evidence/<candidate>``, ``edf/<kind>`` and ``sd/<kind>``, with competing causes
    ``edf/<cause>/<kind>``.
    """
    values = {f"evidence/{candidate}": value for candidate, value in choice.evidence.items()}
    for cause, each in choice.estimations.items():
        of_cause = f"{cause}/" if len(choice.estimations) > 1 else ""
        for kind, freedom, deviation in zip(each.kinds, each.freedom, each.deviation, strict=True):
            values |= {f"edf/{of_cause}{kind}": freedom, f"sd/{of_cause}{kind}": deviation}
    for tag, value in values.items():
        writer.add_scalar(tag, value)
