"""Training history, callbacks and TensorBoard."""

from sstorch.monitoring.callbacks import Callback, History, ProgressBar, TensorBoard
from sstorch.monitoring.callbacks import StepContext as StepContext  # callbacks receive it, none makes it

__all__ = ["Callback", "History", "ProgressBar", "TensorBoard"]
