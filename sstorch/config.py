"""Schemas of the Hydra configuration, and the objects they describe."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from sstorch.data import SurvivalData, load_dataset
from sstorch.data.datasets import optional_columns
from sstorch.data.preprocessing import Categorical, Numeric
from sstorch.exceptions import ConfigError
from sstorch.nn import Prediction, make_family
from sstorch.objective import L2Parity
from sstorch.objective.parity import Gates, Pairs, ParityRule
from sstorch.optim import JOINT_RACE, Adam, Joint, LBFGSOptions, Nodec, NodecJoint, Race, Trainer
from sstorch.soft import SoftSurvivalTree


@dataclass
class DatasetConfig:
    """Where the rows come from; ``path`` and what follows describe a file (``dataset=csv``)."""

    name: str = MISSING
    path: str | None = None
    time: str = "time"
    event: str = "event"
    event_coding: str = "auto"
    drop: list[str] = field(default_factory=list)
    sep: str | None = None
    strict: bool = True
    entry: str | None = None

    @property
    def label(self) -> str:
        """Name in the results of a study: that of the data set, or of the file without its ending."""
        return self.name if self.path is None else Path(self.path).stem

    def load(self, sensitive: str | None = None) -> SurvivalData:
        """Read the data set.

        Args:
            sensitive: a column that must be there: some data sets have it only when asked.

        Raises:
            ConfigError: a file is asked for without its path, or the data set does not exist.
            DataError: the data cannot be used.
        """
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
                "dataset=csv needs dataset.path=FILE, dataset.time=COLUMN and dataset.event=COLUMN"
            )
        options: dict[str, Any] = {k: v for k, v in vars(self).items() if k not in ("name", "drop")}
        return load_dataset("csv", drop=tuple(self.drop), **options)


@dataclass
class TreeConfig:
    """Shape, prediction and penalties of the tree, and what becomes of missing values."""

    depth: int = 2
    prediction: str = "hbp"
    ridge: float = 1e-3
    gate_ridge: float = 1e-4
    fused: float = 0.0
    holdout: float = 0.0
    n_shards: int = 1
    gate_sparsity: float = 0.0
    missing_numbers: str = "mean"
    missing_categories: str = "zeros"


@dataclass
class LeafConfig:
    """Hazard family of the leaves; ``options`` are those of its class."""

    name: str = MISSING
    options: dict[str, Any] = field(default_factory=dict)


# The settings of the penalty that each choice of the group stands for.
_GATES: dict[str, Gates] = {"l2": "frozen", "l2_relaxed": "relaxed"}


@dataclass
class FairnessConfig:
    """Penalty on differences between the survival curves of the groups of a sensitive column.

    The column is no feature unless ``feature`` is true. With ``name=none`` a column that is named is taken
    out of the features too, and the groups are reported.
    """

    name: str = "none"
    sensitive: str | None = None
    feature: bool = False
    rho: float = 1.0
    pairs: str = "mean"
    rule: str = "quadrature"
    n_nodes: int = 64

    def build(self) -> L2Parity | None:
        """Build the settings of the penalty.

        Raises:
            ConfigError: a value does not exist, or the sensitive column is not named.
        """
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


_NODEC_FIELDS = (
    "eps",
    "macro_iterations",
    "zeta",
    "patience",
    "race",
)
# What each trainer reads of its configuration.
_TRAINER_FIELDS = {
    "nodec": _NODEC_FIELDS,
    "joint": ("max_iterations", "race"),
    "nodec+joint": (*_NODEC_FIELDS, "max_iterations"),
    "adam": ("epochs", "batch_size", "learning_rate"),
}


@dataclass
class TrainerConfig:
    """Settings of a trainer: :class:`sstorch.optim.Nodec`, ``Joint``, ``NodecJoint`` or ``Adam``."""

    name: str = MISSING
    eps: str = "eps_paper"
    macro_iterations: int = 10
    zeta: float = 0.8
    patience: int | None = None
    race: bool = True
    max_iterations: int = 1000
    epochs: int = 50
    batch_size: int = 256
    learning_rate: float = 0.02

    def build(self) -> Trainer:
        """Build the trainer.

        Raises:
            ConfigError: a value does not exist or is out of range, or is not read by the trainer.
        """
        if self.name not in _TRAINER_FIELDS:
            raise ConfigError(f"trainer.name must be one of {', '.join(_TRAINER_FIELDS)}, got {self.name!r}")
        plain = TrainerConfig(name=self.name)
        for name, value in vars(self).items():
            if value != getattr(plain, name) and name not in _TRAINER_FIELDS[self.name]:
                raise ConfigError(f"trainer.{name} is not used by trainer={self.name}")
        nodec = Nodec(
            eps=self.eps,
            macro_iterations=self.macro_iterations,
            zeta=self.zeta,
            patience=self.patience,
            race=Race() if self.race else None,
        )
        joint = Joint(LBFGSOptions(max_iterations=self.max_iterations))
        if self.name == "adam":
            return Adam(self.epochs, self.batch_size, self.learning_rate)
        racing = replace(joint, race=JOINT_RACE if self.race else None)
        return {"nodec": nodec, "joint": racing, "nodec+joint": NodecJoint(nodec, joint)}[self.name]


@dataclass
class InitConfig:
    """Initial solutions."""

    name: str = MISSING


@dataclass
class CVConfig:
    """Folds and starts."""

    n_folds: int = 5
    n_starts: int = 10
    seed: int = 0


@dataclass
class DeviceConfig:
    """Device, precision, and CPU threads (None: one for a small batch, otherwise torch's own choice)."""

    name: str = MISSING
    dtype: str = "float64"
    threads: int | None = None


@dataclass
class LoggerConfig:
    """What a run tells while it trains."""

    tensorboard: bool = True
    progress: bool = True


@dataclass
class StudyConfig:
    """Every model on the same folds of every data set; models that are compared, and where it runs.

    ``soft_trees`` are :class:`~sstorch.SoftSurvivalTree` by name: each a mapping of its parameters, which win
    over those of the configuration, with ``leaf_options`` for the options of the leaf. ``baselines`` are
    mappings of their options. A parameter that is a list makes a model for each of its values. ``searches``
    are :class:`~sstorch.SoftSurvivalTreeCV` by name, in which the values of a list are compared. ``models``
    takes some of all of these by name, and None all.
    """

    folder: str = "runs/study"
    datasets: list[str] | None = None
    models: list[str] | None = None
    soft_trees: dict[str, Any] = field(default_factory=dict)
    searches: dict[str, Any] = field(default_factory=dict)
    baselines: dict[str, Any] = field(default_factory=dict)
    engine: str = "processes"
    n_jobs: int = 1
    address: str | None = None


@dataclass
class Config:
    """The whole configuration."""

    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    tree: TreeConfig = field(default_factory=TreeConfig)
    leaf: LeafConfig = field(default_factory=LeafConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    init: InitConfig = field(default_factory=InitConfig)
    cv: CVConfig = field(default_factory=CVConfig)
    device: DeviceConfig = field(default_factory=DeviceConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    fairness: FairnessConfig = field(default_factory=FairnessConfig)
    study: StudyConfig | None = None
    seed: int = 0

    def load(self) -> SurvivalData:
        """Read the data set, with the groups of the sensitive column if one is named."""
        fairness = self.fairness
        data = self.dataset.load(fairness.sensitive)
        return (
            data if fairness.sensitive is None else data.with_sensitive(fairness.sensitive, fairness.feature)
        )

    def estimator(self) -> SoftSurvivalTree:
        """Build the unfitted tree that the configuration describes."""
        tree, parity = self.tree, self.fairness.build()
        return SoftSurvivalTree(
            depth=tree.depth,
            leaf=make_family(self.leaf.name, **self.leaf.options),
            n_starts=self.cv.n_starts,
            trainer=self.trainer.build(),
            init=self.init.name,
            ridge=tree.ridge,
            gate_ridge=tree.gate_ridge,
            fused=tree.fused,
            holdout=tree.holdout,
            n_shards=tree.n_shards,
            gate_sparsity=tree.gate_sparsity,
            prediction=cast(Prediction, tree.prediction),
            device=self.device.name,
            dtype=self.device.dtype,
            random_state=self.seed,
            missing_numbers=cast(Numeric, tree.missing_numbers),
            missing_categories=cast(Categorical, tree.missing_categories),
            fairness=parity,
            rho=self.fairness.rho if parity is not None else 0.0,
        )


def register_schemas() -> None:
    """Make the schema known to Hydra under the name ``schema``, on which config.yaml builds."""
    ConfigStore.instance().store(name="schema", node=Config)
