"""Schemas of the Hydra configuration, and the objects they describe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING as NO_FACTORY
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Any, cast

from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException, ValidationError

from sstorch.bench.flat import soft_tree, unused
from sstorch.checks import nearest_text, wording
from sstorch.data import SurvivalData, load_dataset
from sstorch.data.datasets import ENTRIES, optional_columns
from sstorch.data.files import load_file
from sstorch.exceptions import ConfigError
from sstorch.nn import FAMILIES, HazardFamily, make_family
from sstorch.objective import L2Parity
from sstorch.objective.parity import Gates, Pairs, ParityRule
from sstorch.optim import Joint, LBFGSOptions, Leaves, Nodec, NodecJoint, Trainer
from sstorch.soft import SoftSurvivalTree, SurvivalRegression
from sstorch.soft.estimator import SoftEstimator
from sstorch.soft.setting import Setting
from sstorch.soft.settings import AUTO, INITS, SETTINGS
from sstorch.usage import configuration


def setting(default: Any, text: str) -> Any:
    """A field with its default and its meaning, a line of ``--help``; a list is copied."""
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata={"text": text})
    return field(default=default, metadata={"text": text})


@dataclass
class DatasetConfig:
    """Source of the rows; ``path`` and the options describe a file (``dataset=csv``)."""

    name: str = setting(MISSING, "name of the data set; dataset=NAME chooses one")
    path: str | None = setting(None, "data file; data_sets.md lists the formats")
    time: str = setting("time", "column of the times")
    event: str = setting("event", "column of the events")
    drop: list[str] = setting([], "columns that are not features")
    read: Any = setting(None, 'options of pandas.read_csv and others: {sep: ";", decimal: ","}')
    strict: bool = setting(True, "error for suspicious columns, such as identifiers")
    entry: str | None = setting(None, "column of the entry times (left truncation)")
    id: str | None = setting(None, "column of the subjects, for several rows per subject")
    event_value: str | None = setting(None, "value of the event column for an event, such as yes, or 2")
    weight: str | None = setting(None, "column of the weights")
    cause: str | None = setting(None, "column of competing causes, in place of event")
    causes: Any = setting("auto", "names of the causes by value, such as {1: relapse, 2: death}")
    time_unit: str | None = setting(None, "unit of the times, for texts and figures, such as days")

    @property
    def label(self) -> str:
        """Name in the results of a study: that of the data set, or of the file without its ending."""
        return self.name if self.path is None else Path(self.path).stem

    def load(self, sensitive: str | None = None) -> SurvivalData:
        """Read the data set, with the column `sensitive`, which some data sets have only on request."""
        if self.name != "csv":
            for field_, default in vars(DatasetConfig(name=self.name)).items():
                if getattr(self, field_) != default:
                    raise ConfigError(
                        f"dataset.{field_} describes a file and is not used by dataset={self.name}; "
                        "add dataset=csv"
                    )
            return load_dataset(self.name, **dict.fromkeys(optional_columns(self.name, sensitive), True))
        if self.path is None:
            raise ConfigError(
                "dataset=csv needs dataset.path=FILE, and dataset.time=COLUMN with dataset.event=COLUMN or "
                "dataset.cause=COLUMN"
            )
        options = {k: v for k, v in vars(self).items() if k not in ("name", "path", "cause")}
        for name in ("read", "causes"):
            if isinstance(text := options[name], str) and text.startswith("{"):  # keys that Hydra cannot read
                options[name] = OmegaConf.to_container(OmegaConf.create(text))
        if self.cause is not None:
            options["event"] = self.cause
        else:
            options["causes"] = None
        with wording(options="dataset."):
            return load_file(self.path, **options)


# Settings whose default depends on the class of the estimator, or that only one class has: null.
_BY_CLASS = (
    *("ridge", "roughness", "gate_charge", "gate_ridge", "gate_ridge_units", "gate_sparsity"),
    *("fused", "offset", "fused_shape", "min_leaf", "numeric"),
)


def _tree_field(name: str, item: Setting) -> tuple[str, Any, Any]:
    """Name, type and default of a setting as a field; a mapping or a list has no type, its rule checks it."""
    default = list(item.default) if isinstance(item.default, tuple) else item.default
    if name in _BY_CLASS:
        return name, Any, setting(None, item.text)
    kind = Any if item.nested or isinstance(default, list) else type(default)
    return name, kind, setting(default, item.text)


# Shape, prediction and penalties of the tree, curves of its columns, and what becomes of missing values.
TreeConfig = make_dataclass(
    "TreeConfig",
    [_tree_field(name, item) for name, item in SETTINGS.items() if item.in_tree_group],
    namespace={"__module__": __name__},
)


@dataclass
class LeafConfig:
    """Hazard family of the leaves; ``options`` are those of its class. ``auto`` depends on the outcome."""

    name: str = setting(MISSING, "name of the hazard family; leaf=NAME chooses one")
    options: dict[str, Any] = field(
        default_factory=dict, metadata={"text": "options of the family, such as leaf.options.knots=3"}
    )

    def build(self) -> str | HazardFamily:
        """Build the family, or ``"auto"``."""
        return AUTO if self.name == AUTO and not self.options else make_family(self.name, **self.options)


# The settings of the penalty that each choice of the group represents.
_GATES: dict[str, Gates] = {"l2": "frozen", "l2_relaxed": "relaxed"}


@dataclass
class FairnessConfig:
    """Penalty on differences between the survival curves of the groups of a sensitive column.

    The column is not a feature unless ``feature`` is true. With ``name=none`` a column that is named is taken
    out of the features too, and the groups are reported.
    """

    name: str = setting("none", "name of the penalty: fairness=none, l2 or l2_relaxed")
    sensitive: str | None = setting(None, "column of the sensitive groups")
    feature: bool = setting(False, "true keeps the sensitive column as a feature")
    rho: float = setting(1.0, "coefficient of the penalty")
    pairs: str = setting("mean", "mean or sum, over all pairs of rows")
    rule: str = setting("quadrature", "times of the comparison of curves: quadrature or observed_times")
    n_nodes: int = setting(64, "number of times of the quadrature")

    def build(self) -> L2Parity | None:
        """Build the settings of the penalty; None without one."""
        if self.name == "none":
            for name in ("rho", "pairs", "rule", "n_nodes"):
                if getattr(self, name) != getattr(FairnessConfig(), name):
                    raise ConfigError(f"fairness.{name} is not used by fairness=none; add fairness=l2")
            return None
        if self.name not in _GATES:
            raise ConfigError(f"fairness.name must be one of none, {', '.join(_GATES)}, got {self.name!r}")
        if self.sensitive is None:
            raise ConfigError(f"fairness={self.name} needs fairness.sensitive=COLUMN")
        return L2Parity(_GATES[self.name], cast(Pairs, self.pairs), cast(ParityRule, self.rule), self.n_nodes)


@dataclass
class TrainerConfig:
    """Settings of a trainer; each has a class of its own, which is an option of the group ``trainer``."""

    name: str = setting(MISSING, "name of the trainer; trainer=NAME chooses one")
    holdout: float = setting(0.0, "share of held-out training rows for stopping and choice of the start")

    def build(self) -> Trainer | None:
        """Build the trainer; None leaves it to the kind of start."""
        if self.name != type(self)().name:
            raise ConfigError(
                f"trainer.name={self.name} does not choose a trainer: write trainer=NAME, NAME being one of "
                f"{', '.join(TRAINER_CONFIGS)}"
            )
        return self._trainer()

    def _trainer(self) -> Trainer | None:
        return None


@dataclass
class AutoConfig(TrainerConfig):
    """``leaves`` for gates that are distilled, and ``nodec`` for other starts."""

    name: str = "auto"


@dataclass
class LeavesConfig(TrainerConfig):
    """:class:`sstorch.optim.Leaves`: gates stay where the start has put them."""

    name: str = "leaves"
    max_iterations: int = setting(1000, "maximum number of iterations of L-BFGS")

    def _trainer(self) -> Trainer:
        return Leaves(LBFGSOptions(max_iterations=self.max_iterations))


@dataclass
class NodecConfig(TrainerConfig):
    """:class:`sstorch.optim.Nodec`."""

    name: str = "nodec"
    eps: str = setting("eps_paper", "thresholds of the steps of gates: eps_paper or eps_ordered")
    macro_iterations: int = setting(10, "maximum number of passes over the gates")
    zeta: float = setting(0.8, "factor of the thresholds per pass")
    patience: int | None = setting(None, "passes without gain after which a tree stops; null: no limit")

    def _trainer(self) -> Trainer:
        return self._nodec()

    def _nodec(self) -> Nodec:
        return Nodec(self.eps, self.macro_iterations, self.zeta, self.patience)


@dataclass
class JointConfig(TrainerConfig):
    """:class:`sstorch.optim.Joint`."""

    name: str = "joint"
    max_iterations: int = setting(1000, "maximum number of iterations of L-BFGS")

    def _trainer(self) -> Trainer:
        return Joint(LBFGSOptions(max_iterations=self.max_iterations))


@dataclass
class NodecJointConfig(NodecConfig):
    """:class:`sstorch.optim.NodecJoint`; ``max_iterations`` is of the joint polish."""

    name: str = "nodec+joint"
    max_iterations: int = setting(1000, "maximum number of iterations of the joint optimisation")

    def _trainer(self) -> Trainer:
        return NodecJoint(self._nodec(), Joint(LBFGSOptions(max_iterations=self.max_iterations)))


# By the name of the option of the group ``trainer``.
TRAINER_CONFIGS: dict[str, type[TrainerConfig]] = {
    "auto": AutoConfig,
    "leaves": LeavesConfig,
    "nodec": NodecConfig,
    "joint": JointConfig,
    "nodec_joint": NodecJointConfig,
}


@dataclass
class InitConfig:
    """Initial solutions; ``auto`` are distilled gates, or random ones for a trainer that moves them."""

    name: str = setting(MISSING, "name of the kind of starting values; init=NAME chooses one")


# Options of groups without files, by name. Hydra copies all of them in each composition, hence no more of a
# data set than what its name sets.
REGISTERED: dict[str, dict[str, Any]] = {
    "dataset": {name: {"name": name} for name in (*ENTRIES, "csv")},
    "leaf": {
        AUTO: LeafConfig(AUTO),
        **{name: LeafConfig(name, family().options()) for name, family in FAMILIES.items()},
    },
    "trainer": dict(TRAINER_CONFIGS),
    "init": {name: InitConfig(name) for name in ("auto", *INITS)},
}


@dataclass
class CVConfig:
    """Folds and starts (None: 1 if gates are distilled, else 10)."""

    n_folds: int = setting(5, "number of folds of the cross-validation")
    n_starts: int | None = setting(None, "number of starts; null: 1 for distilled gates, else 10")
    seed: int = setting(0, "random seed of the folds")
    peers: bool = setting(True, "true also scores reference models, such as Cox, on the same folds")


@dataclass
class DeviceConfig:
    """Device, precision, engine, and CPU threads (None: one for a small batch, else torch's own choice)."""

    name: str = setting(MISSING, "name of the device: device=cpu or cuda, device.name=cuda:1")
    dtype: str = setting("float64", "floating-point type: float64 or float32")
    engine: str = setting("auto", "engine of training: torch, compiled (on the CPU), or auto")
    threads: int | None = setting(
        None, "CPU threads of a large batch; null: set by torch; a small batch takes one"
    )


@dataclass
class LoggerConfig:
    """Progress on the terminal, and TensorBoard files."""

    tensorboard: bool = setting(True, "true writes TensorBoard files")
    progress: bool = setting(True, "true shows progress")


@dataclass
class StudyConfig:
    """Every model on the same folds of every data set; models that are compared, and where it runs.

    ``soft_trees`` are estimators by name: each a mapping of flat settings (:func:`~sstorch.bench.soft_tree`),
    which win over those of the configuration, with ``leaf_options`` for the options of the leaf.
    ``baselines`` are mappings of their options. A parameter that is a list makes a model for each of its
    values. ``models`` takes some of all of these by name, and None all.
    """

    folder: str = setting("runs/study", "folder of the results")
    datasets: list[str] | None = setting(None, "names of data sets; null: the one of dataset=")
    models: list[str] | None = setting(None, "names of some of its models; null: all")
    soft_trees: dict[str, Any] = field(
        default_factory=dict, metadata={"text": "soft trees by name, with their parameters"}
    )
    baselines: dict[str, Any] = field(
        default_factory=dict, metadata={"text": "other models by name, with their options"}
    )
    n_jobs: int = setting(1, "number of concurrent tasks on this machine")


@dataclass
class Config:
    """The whole configuration."""

    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    tree: Any = field(default_factory=TreeConfig)
    leaf: LeafConfig = field(default_factory=LeafConfig)
    trainer: TrainerConfig = MISSING
    init: InitConfig = field(default_factory=InitConfig)
    cv: CVConfig = field(default_factory=CVConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    fairness: FairnessConfig = field(default_factory=FairnessConfig)
    study: StudyConfig | None = None
    seed: int = setting(0, "random seed, except for the folds")

    def load(self) -> SurvivalData:
        """Read the data set, with the groups of the sensitive column if one is named."""
        fairness = self.fairness
        data = self.dataset.load(fairness.sensitive)
        return (
            data if fairness.sensitive is None else data.with_sensitive(fairness.sensitive, fairness.feature)
        )

    def flat(self) -> dict[str, Any]:
        """The settings of the tree by name, as :func:`~sstorch.bench.soft_tree` takes them."""
        parity, trainer = self.fairness.build(), self.trainer
        # A configuration has lists where Python's defaults, and so equal estimators, have tuples.
        tree: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in vars(self.tree).items()}
        return {
            **tree,
            "leaf": self.leaf.build(),
            "n_starts": self.cv.n_starts,
            "trainer": trainer.build(),
            "holdout": trainer.holdout,
            "engine": self.device.engine,
            "init": None if self.init.name == "auto" else self.init.name,
            "device": self.device.name,
            "dtype": self.device.dtype,
            "random_state": self.seed,
            "fairness": parity,
            "rho": None if parity is None else self.fairness.rho,
        }

    def estimator(self) -> SoftEstimator:
        """Build the unfitted estimator that the configuration describes."""
        made, usual, n_starts = soft_tree(**self.flat()), vars(TreeConfig()), self.cv.n_starts
        given = {name: value for name, value in vars(self.tree).items() if value != usual[name]}
        if n_starts not in (None, 1):  # estimators without this parameter train one tree
            given["n_starts"] = n_starts
        for name in unused(given, [made]):
            remedy = "init=random, which makes a SoftSurvivalTree, uses it"
            if isinstance(made, SurvivalRegression):
                remedy = "it needs gates, tree.depth=1 or more"
            elif isinstance(made, SoftSurvivalTree):
                remedy = "init=distilled uses it"
            raise ConfigError(
                f"{'cv' if name == 'n_starts' else 'tree'}.{name}={given[name]} is not used by "
                f"{type(made).__name__}: leave it out; {remedy}"
            )
        return made


def to_config(composed: DictConfig) -> Config:
    """The configuration as objects; a ConfigError for a setting added with ``+`` that no group has."""
    config = cast(Config, OmegaConf.to_object(composed))
    for name in set(vars(config)) - {item.name for item in fields(Config)}:
        raise ConfigError(no_setting_text(name, Config))
    for group in fields(Config):
        node = getattr(config, group.name)
        if is_dataclass(node):
            for name in set(vars(node)) - {item.name for item in fields(node)}:
                raise ConfigError(no_setting_text(f"{group.name}.{name}", type(node)))
    return config


def no_setting_text(setting: str, group: type) -> str:
    """Message that a group of the configuration has no setting of this dotted name."""
    known = [item.name for item in fields(group) if item.name != "name"]
    if group in (TrainerConfig, AutoConfig):
        return f"{setting} belongs to a trainer: name one, such as trainer=nodec"
    if issubclass(group, TrainerConfig):
        return f"{setting} is not used by trainer={group().name}, which has {', '.join(known)}"
    room, dot, last = setting.rpartition(".")
    hint = nearest_text(last, {name: f"{room}{dot}{name}" for name in known})
    if not hint and issubclass(group, Config):  # the name of a setting without that of its group
        hint = nearest_text(setting, {name.rpartition(".")[2]: name for name, _, _ in settings()})
    return f"there is no setting {setting}.{hint or ' --help lists the settings.'}"


def settings() -> Iterator[tuple[str, Any, str]]:
    """Every setting: dotted name, default and meaning; of trainers those that any of them has."""
    said = set()
    for group in fields(Config):
        if group.name == "seed":
            yield group.name, group.default, group.metadata["text"]
            continue
        for kind in _GROUPS[group.name]:
            for item in sorted(fields(kind), key=lambda item: item.name not in ("name", "path")):
                name = f"{group.name}.{item.name}"
                if name in said or "text" not in item.metadata:
                    continue
                said.add(name)
                default = item.default if item.default_factory is NO_FACTORY else item.default_factory()
                yield name, default, item.metadata["text"]


# Classes of the groups.
_GROUPS: dict[str, tuple[type, ...]] = {
    "dataset": (DatasetConfig,),
    "tree": (TreeConfig,),
    "leaf": (LeafConfig,),
    "trainer": (TrainerConfig, *TRAINER_CONFIGS.values()),
    "init": (InitConfig,),
    "cv": (CVConfig,),
    "device": (DeviceConfig,),
    "logger": (LoggerConfig,),
    "fairness": (FairnessConfig,),
    "study": (StudyConfig,),
}


def override_text(error: HydraException) -> str | None:
    """Name the unknown setting or the value of a wrong type in an error of Hydra."""
    cause = error.__cause__
    if not isinstance(cause, OmegaConfBaseException) or not cause.full_key:
        return None
    if isinstance(cause, ValidationError):
        return f"{cause.full_key}: {str(cause.msg).splitlines()[0]}"
    group = cause.object_type
    if group is None or group is TrainerConfig or not is_dataclass(group):
        return None
    missing = isinstance(cause, ConfigAttributeError | ConfigKeyError)
    return no_setting_text(cause.full_key, group) if missing else None


def config_path() -> str:
    """Search path of the configuration for Hydra."""
    folder = configuration()
    return str(folder) if isinstance(folder, Path) else "pkg://sstorch.configs"


def register_schemas() -> None:
    """Register with Hydra the schema, on which config.yaml builds, and the options of `REGISTERED`."""
    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    for group, options in REGISTERED.items():
        for name, node in options.items():
            store.store(group=group, name=name, node=node)
