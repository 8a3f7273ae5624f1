"""Configuration of the command: source of the rows, folds, logs, study, and nodes that Hydra instantiates."""

from __future__ import annotations

import importlib
import inspect
import os
import pydoc
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, cast

from hydra.core.config_store import ConfigStore
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import MISSING, DictConfig, OmegaConf

from sstorch.checks import names_text, nearest_text
from sstorch.data import SurvivalData, load_dataset, read_file
from sstorch.data.datasets import ENTRIES
from sstorch.exceptions import ConfigError, SstorchError, named
from sstorch.soft.estimators import SoftSurvivalTree
from sstorch.usage import configuration


@dataclass
class DatasetConfig:
    """Source of the rows; ``path`` and the options describe a file (``dataset=csv``)."""

    name: str = MISSING  # of the data set; ``dataset=NAME`` chooses one
    path: str | None = None  # data file; docs/data_sets.md lists the formats
    time: str = "time"
    event: str = "event"
    drop: list[str] = field(default_factory=list)  # columns that are not features
    read: Any = None  # options of pandas.read_csv and others, such as ``{sep: ";", decimal: ","}``
    entry: str | None = None  # column of the entry times (left truncation)
    id: str | None = None  # column of the subjects, for several rows per subject
    event_value: str | None = None  # value of the event column for an event, such as ``yes``, or 2
    weight: str | None = None
    cause: str | None = None  # column of competing causes, in place of ``event``
    causes: Any = "auto"  # names of the causes by value, such as ``{1: relapse, 2: death}``
    time_unit: str | None = None  # of the times, for texts and figures, such as ``days``
    sensitive: str | None = None  # column of the groups that scores and a fairness penalty compare
    sensitive_feature: bool = False  # whether that column is a feature, too

    @property
    def label(self) -> str:
        """Name in the results of a study: that of the data set, or of the file without its ending."""
        return self.name if self.path is None else Path(self.path).stem

    def load(self) -> SurvivalData:
        """Read the data set, with the groups of the sensitive column if one is named."""
        options = {k: v for k, v in vars(self).items() if k not in ("name", "sensitive", "sensitive_feature")}
        data = self._file(**options) if self.name == "csv" else self._named(options)
        if self.sensitive is None:
            return data
        grouped = data.with_sensitive(self.sensitive)
        grouped.frame = data.frame if self.sensitive_feature else grouped.frame
        return grouped

    def _named(self, options: dict[str, Any]) -> SurvivalData:
        usual = vars(DatasetConfig(name=self.name))
        if read := [name for name, value in options.items() if value != usual[name]]:
            raise ConfigError(
                f"dataset.{read[0]} describes a file and is not used by dataset={self.name}; add dataset=csv"
            )
        return load_dataset(self.name)

    def _file(self, path: str | None, read: Any, cause: str | None, **options: Any) -> SurvivalData:
        if path is None:
            raise ConfigError(
                "dataset=csv needs dataset.path=FILE, and dataset.time=COLUMN with dataset.event=COLUMN or "
                "dataset.cause=COLUMN"
            )
        options |= {"causes": None} if cause is None else {"event": cause}
        frame = read_file(path, read)
        with named(str(Path(path).expanduser())):
            return SurvivalData.from_frame(frame, **options)


@dataclass
class CVConfig:
    """Cross-validation."""

    n_folds: int = 5
    seed: int = 0
    peers: bool = True  # whether reference models are scored on the same folds
    # Score whose mean over test folds (and causes) a sweeper gets; None for the first, a concordance.
    score: str | None = None


@dataclass
class LoggerConfig:
    """TensorBoard files, and progress on the terminal."""

    tensorboard: bool = True
    progress: bool = True


@dataclass
class StudyConfig:
    """Models on the same folds of data sets."""

    folder: str = "runs/study"  # of the results
    datasets: list[str] | None = None  # names; None for the one of ``dataset``
    # Nodes of estimators by name, each with a ``_target_``. A parameter that is a list makes a model for each
    # value; ``optional: true`` leaves a model out whose packages are not installed.
    models: dict[str, Any] = field(default_factory=dict)
    only: list[str] | None = None  # names of some of the models; None for all
    n_jobs: int = 1  # concurrent tasks on this machine


@dataclass
class Config:
    """The whole configuration."""

    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    model: Any = field(default_factory=dict)  # node of the estimator: ``_target_`` and its parameters
    peers: Any = field(default_factory=dict)  # nodes of estimators, which a run scores on the same folds
    callbacks: Any = field(default_factory=dict)  # nodes of :class:`~sstorch.monitoring.Callback` by name
    imports: list[str] = field(default_factory=list)  # imported first, also from the working directory
    cv: CVConfig = field(default_factory=CVConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    study: StudyConfig | None = None
    device: str = "cpu"  # or a CUDA device
    threads: int | None = None  # of the CPU; None for one for a small batch, otherwise torch's own choice
    seed: int = 0  # of everything random except the folds


def config_path() -> str:
    """Search path of the configuration for Hydra."""
    folder = configuration()
    return str(folder) if isinstance(folder, Path) else "pkg://sstorch.configs"


def register_schemas() -> None:
    """Register with Hydra the schema, on which config.yaml builds, and the named data sets."""
    store, schema = ConfigStore.instance(), OmegaConf.structured(Config)
    for name in ("model", "peers", "callbacks"):  # the parameters are those of the target, see `build`
        OmegaConf.set_struct(schema[name], False)
    store.store(name="schema", node=schema)
    # Hydra copies all of them in each composition, hence no more than what the name sets.
    for name in (*ENTRIES, "csv"):
        store.store(group="dataset", name=name, node={"name": name})


def to_config(composed: DictConfig) -> Config:
    """The configuration as objects; imports its modules. ConfigError for ``+NAME`` that no group has."""
    config = cast(Config, OmegaConf.to_object(composed))
    for room, group in (("", config), *((f"{name}.", value) for name, value in vars(config).items())):
        if is_dataclass(group) and not isinstance(group, type):
            for name in set(vars(group)) - {item.name for item in fields(group)}:
                raise ConfigError(no_setting_text(f"{room}{name}", type(group)))
    if os.getcwd() not in sys.path:  # of a command it is the folder of the command
        sys.path.append(os.getcwd())
    for name in config.imports:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ConfigError(f"imports: module {name!r} cannot be imported: {error}") from error
    return config


def no_setting_text(setting: str, group: type) -> str:
    """Message that a group of the configuration has no setting of this dotted name, with the nearest one."""
    room, dot, last = setting.rpartition(".")
    names = {}
    if not room:  # the name of a setting may stand without that of its group
        names = {name: f"model.{name}" for name in parameters_of(SoftSurvivalTree) or ()}
        for owner, kind in (("dataset", DatasetConfig), ("cv", CVConfig), ("logger", LoggerConfig)):
            names |= {item.name: f"{owner}.{item.name}" for item in fields(kind)}
    hint = nearest_text(last, names | {item.name: f"{room}{dot}{item.name}" for item in fields(group)})
    return f"there is no setting {setting}.{hint or ' --cfg job shows the settings.'}"


def build(node: Any, where: str) -> Any:
    """The object that a node describes: a ``_target_``, any importable class or function, and parameters."""
    # ConfigError, with the name `where` of the node, if there is no such target or parameter.
    check_node(node, where)
    try:
        return instantiate(node, _convert_="all")
    except InstantiationException as error:
        cause: BaseException = error
        while cause.__cause__ is not None and not isinstance(cause, SstorchError):
            cause = cause.__cause__
        kind = "" if isinstance(cause, SstorchError) else f"{type(cause).__name__}: "
        raise ConfigError(f"{where}: {kind}{cause}") from error


def check_node(node: Any, where: str) -> None:
    """Check the targets and the names of the parameters of a node, inner nodes included."""
    if not isinstance(node, Mapping) or not isinstance(node.get("_target_"), str):
        raise ConfigError(f"{where} must have a _target_, such as sstorch.SoftSurvivalTree, got {node!r}")
    known = parameters_of(_located(node["_target_"], where))
    for name, value in node.items():
        if str(name).startswith("_") and str(name).endswith("_"):  # of Hydra
            continue
        if known is not None and name not in known:
            near = nearest_text(name, {each: f"{where}.{each}" for each in known})
            raise ConfigError(
                f"there is no setting {where}.{name}."
                + (near or f" {node['_target_']} has {names_text(known) if known else 'no parameters'}")
            )
        _check_inner(value, f"{where}.{name}")
        usual = inspect.Parameter.empty if known is None else known[name].default
        if isinstance(value, Mapping) and "_target_" not in value and hasattr(usual, "get_params"):
            kind = type(usual).__name__
            raise ConfigError(f"{where}.{name} must have a _target_, such as sstorch.{kind}, got {value!r}")


def _check_inner(value: object, where: str) -> None:
    if isinstance(value, Mapping) and "_target_" in value:
        check_node(value, where)
    elif isinstance(value, Mapping | list):
        for name, each in value.items() if isinstance(value, Mapping) else enumerate(value):
            _check_inner(each, f"{where}.{name}")


def _located(path: str, where: str) -> Any:
    try:
        target = pydoc.locate(path)
    except pydoc.ErrorDuringImport as error:
        raise ConfigError(f"{where}._target_: {path} cannot be imported: {error.value}") from error
    if target is None:
        room, _, name = path.rpartition(".")
        parent = pydoc.locate(room) if room else None
        near = "" if parent is None else nearest_text(name, dir(parent))
        raise ConfigError(f"{where}._target_: there is no {path}.{near}")
    return target


def parameters_of(target: Any) -> dict[str, inspect.Parameter] | None:
    """The parameters of a class or function by name; None if it takes any."""
    # A class method with keyword parameters, such as ``SoftSurvivalTree.paper``, has those of its class, too.
    try:
        own = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return None
    plain = {k: v for k, v in own.items() if v.kind not in (v.VAR_KEYWORD, v.VAR_POSITIONAL)}
    if any(each.kind == each.VAR_KEYWORD for each in own.values()):
        owner = getattr(target, "__self__", None)
        of_class = parameters_of(owner) if isinstance(owner, type) else None
        return None if of_class is None else of_class | plain
    return plain
