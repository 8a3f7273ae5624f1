"""Training history, callbacks and TensorBoard."""

from sstorch.monitoring.callbacks import Callback, ProgressBar, StepContext
from sstorch.monitoring.history import History
from sstorch.monitoring.tensorboard import TensorBoard

__all__ = ["Callback", "History", "ProgressBar", "StepContext", "TensorBoard"]
