"""What a training run leaves behind, and those who look on while it runs."""

from sstorch.monitoring.callbacks import Callback, StepContext
from sstorch.monitoring.history import History
from sstorch.monitoring.history_file import HistoryWriter
from sstorch.monitoring.progress import ProgressBar

__all__ = ["Callback", "History", "HistoryWriter", "ProgressBar", "StepContext"]
