"""Training history, callbacks and TensorBoard."""

from sstorch.monitoring.callbacks import Callback, ProgressBar
from sstorch.monitoring.callbacks import StepContext as StepContext  # callbacks receive it, none makes it
from sstorch.monitoring.history import History
from sstorch.monitoring.tensorboard import TensorBoard

__all__ = ["Callback", "History", "ProgressBar", "TensorBoard"]
