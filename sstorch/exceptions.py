"""Errors and warnings of the package.

Every message says what was found, where (column, row numbers) and what to do about it.
"""


class SstorchError(Exception):
    """Base class of all errors raised on purpose by sstorch."""


class DataError(SstorchError, ValueError):
    """The data cannot be used as they are: the message names column, rows and remedy."""


class ConfigError(SstorchError, ValueError):
    """A setting has a value that does not exist or does not fit the others."""


class TrainingError(SstorchError, RuntimeError):
    """Training ended without a usable result."""


class FormatError(SstorchError, ValueError):
    """A saved model is incomplete, altered or of an unknown format version."""


class JobError(SstorchError):
    """A job of a sweep has ended with an exit code, and has told why; the other jobs go on.

    Args:
        exit_code: of the job.
    """

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class DataWarning(UserWarning):
    """The data were usable only after a change, which the message names."""
