"""The fits whose results are recorded: tables of cases, and what is written down of each."""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from sstorch import (
    Columns,
    OptimalPolicyTree,
    OptimalSurvivalTree,
    OptimalSurvivalTreeCV,
    OptimalTreeClassifier,
    OptimalTreeRegressor,
    PrognosticTree,
    Search,
    Surv,
    SurvivalData,
    SurvivalRegression,
    inference,
    load_dataset,
    reading,
    validate,
)
from sstorch.bench import (
    cross_validate,
    fairness_path,
    leaf_table,
    make_baseline,
    score_fairness,
    score_predictor,
)
from sstorch.bench.baselines import BASELINES
from sstorch.bench.study_model import BaselineModel
from sstorch.data import Schema
from sstorch.deploy import export_program
from sstorch.exact import Binarizer, IntegratedBrier, LogLikelihood, horizon_labels, policy_scores, solve
from sstorch.exceptions import ConfigError, SstorchError
from sstorch.metrics import SurvivalScorer, evaluate
from sstorch.nn import FAMILIES, Spline
from sstorch.optim import Joint, Nodec, NodecJoint
from sstorch.reading.functions import ReadableTree
from sstorch.soft import bootstrap_trees
from sstorch.soft.estimator import SoftEstimator
from sstorch.validation import group_table
from tests.flat import soft_tree
from tests.reference.exact_text import files_of

Entry = dict[str, Any]  # numbers, arrays, tables and texts by name
Case = Callable[[], Entry]

N_ROWS = 120
TIMES = [5.0, 40.0]
HORIZON = 30.0


@cache
def cohort() -> pd.DataFrame:
    """Rows with numbers, categories, booleans, missing values, a group, an entry time, weights and a dose."""
    draws = np.random.default_rng(23)
    frame = pd.DataFrame(
        {
            "age": draws.uniform(20, 90, N_ROWS).round(1),
            "marker": draws.normal(size=N_ROWS).round(2),
            "stage": draws.choice(["I", "II", "III"], N_ROWS),
            "smoker": draws.uniform(size=N_ROWS) < 0.4,
            "sex": draws.choice(["f", "m"], N_ROWS),
        }
    )
    risk = 0.03 * (frame["age"] - 50) + np.where(frame["marker"] > 0.3, 0.9, -0.4)
    risk += 0.5 * (frame["stage"] == "III") + 0.4 * (frame["sex"] == "m")
    died = 40 * draws.weibull(1.4, N_ROWS) * np.exp(-risk / 1.4)
    left = draws.uniform(5, 110, N_ROWS)
    frame["time"] = np.minimum(died, left).round(1) + 0.1
    frame["event"] = died <= left
    frame["entry"] = (0.3 * frame["time"] * draws.integers(0, 2, N_ROWS)).round(2)
    frame["weight"] = draws.choice([0.0, 0.5, 1.0, 2.0], N_ROWS)
    frame["treatment"] = draws.integers(0, 3, N_ROWS)
    frame["dose"] = (frame["age"] / 10 + 2 * frame["marker"] + draws.normal(size=N_ROWS)).round(2)
    frame.loc[::13, "age"] = np.nan
    frame.loc[5::17, "stage"] = None
    return frame


def features() -> pd.DataFrame:
    """The columns that a model sees, the group not among them."""
    return cohort()[["age", "marker", "stage", "smoker"]]


def target() -> tuple[Any, Any]:
    """Times and events."""
    return cohort()["time"].to_numpy(), cohort()["event"].to_numpy()


def late_target() -> Surv:
    """Times and events of left-truncated rows."""
    return Surv(*target(), entry=cohort()["entry"].to_numpy())


def survival_data(groups: bool = False) -> SurvivalData:
    """The cohort, with or without groups."""
    return SurvivalData(features(), target(), sensitive=cohort()["sex"].to_numpy() if groups else None)


# What is predicted, by the name under which it is recorded; a model has some of them.
PREDICTIONS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "survival": ("predict_survival_function", (TIMES,)),
    "cumulative_hazard": ("predict_cumulative_hazard_function", ([0.0, *TIMES],)),
    "hazard": ("predict_hazard_function", (TIMES,)),
    "falling_curves": ("falling_curves", ([0.0, 2.5, *TIMES, 75.0],)),
    "predict": ("predict", ()),
    "predict_proba": ("predict_proba", ()),
    "quantile 0.5": ("predict_quantile", (0.5,)),
    "quantile 0.2": ("predict_quantile", (0.2,)),
    "rmst": ("predict_rmst", (HORIZON,)),
    "leaf": ("apply", ()),
    "leaf_proba": ("predict_leaf_proba", ()),
}
# Texts and tables of a fitted model: methods, and functions of a soft tree or of any with rules.
METHODS = ("summary", "leaf_texts")
OF_RULES = ("export_text",)
OF_SOFT_TREES = (
    "export_graphviz", "gate_table", "gate_coefficients", "leaf_table", "leaf_coefficients",
    "importance",
)  # fmt: skip
ATTRIBUTES = (
    "objective_", "loss_", "gap_", "certified_", "best_score_", "best_params_", "best_depth_", "best_nodes_",
    "best_index_", "disparity_", "zero_time_", "cutoff_", "effective_size_",
)  # fmt: skip
TABLES = (
    "node_table_", "event_times_", "leaf_table_", "optima_", "path_", "front_", "cv_results_", "folds_",
    "leaf_class_", "leaf_weights_", "leaf_value_", "leaf_treatment_", "scores_", "weights_",
)  # fmt: skip


def predictions(model: Any, X: pd.DataFrame) -> Entry:
    """All rows of the predictions, and of how many of them there is an error instead."""
    entry: Entry = {}
    for name, (method, arguments) in PREDICTIONS.items():
        if hasattr(model, method):
            try:
                entry[name] = np.asarray(getattr(model, method)(X, *arguments))
            except SstorchError as error:
                entry[name] = f"refused: {error}"
    return entry


def texts(model: Any) -> dict[str, Any]:
    """Texts and tables of a fitted model by name."""
    found = {f"{name}()": getattr(model, name)() for name in METHODS if hasattr(model, name)}
    functions = [*OF_RULES, *(OF_SOFT_TREES if isinstance(model, ReadableTree) else ())]
    if hasattr(model, "_export_text"):
        found |= {f"{name}()": getattr(reading, name)(model) for name in functions}
    return found


def describe(model: Any, X: pd.DataFrame, y: Any = None) -> Entry:
    """Everything that is recorded of a fitted model."""
    entry = {name: getattr(model, name) for name in (*ATTRIBUTES, *TABLES) if hasattr(model, name)}
    entry |= texts(model) | predictions(model, X)
    if y is not None:
        for name in ("score", "log_likelihood"):
            if hasattr(model, name):
                entry[f"{name}()"] = getattr(model, name)(X, y)
    if hasattr(model, "history_"):
        entry["history"] = {"steps": model.history_.steps, "passes": model.history_.macro_iterations}
    if hasattr(model, "explain"):
        entry["explain()"] = str(model.explain(X.iloc[:1]))
    if hasattr(model, "save"):
        with tempfile.TemporaryDirectory() as folder:
            model.save(folder)
            entry |= {f"saved {name}": text for name, text in files_of(Path(folder)).items()}
            if hasattr(model, "load"):
                entry["loaded"] = predictions(type(model).load(folder), X)
    return entry


# ---------------------------------------------------------------------- soft trees

# Every parameter is given: the record is of results, the defaults are among the signatures.
BASE: dict[str, Any] = {
    "depth": 1,
    "leaf": "log_logistic",
    "n_starts": 2,
    "trainer": Joint(),
    "init": "random",
    "ridge": 1e-3,
    "gate_ridge": 1e-4,
    "prediction": "hbp",
    "dtype": "float64",
    "missing_numbers": "mean",
    "missing_categories": "zeros",
    "random_state": 3,
}
# What the defaults are where the settings of the other trees do not say otherwise.
GROUPS: dict[str, Any] = {
    **{"init": "distilled", "trainer": "leaves", "n_starts": 1},
    "fit": ("sample_weight", "entry"),
}
TREES: dict[str, dict[str, Any]] = {
    **{f"leaf {name}": {"leaf": name} for name in sorted(FAMILIES)},
    "leaf spline unconstrained": {"leaf": Spline("odds", knots=2, monotone=False), "init": "cox"},
    "leaf spline linear ancillary": {"leaf": Spline("hazard", knots=1, ancillary="linear")},
    **{
        f"trainer {name}": {"trainer": trainer, "depth": 2, "n_starts": 4}
        for name, trainer in {"nodec": Nodec(), "joint": Joint(), "nodec+joint": NodecJoint()}.items()
    },
    "trainer nodec, published": {"trainer": Nodec.paper(), "depth": 2, "gate_ridge": 0.0},
    "trainer nodec, ordered, patience": {"trainer": Nodec(eps="eps_ordered", patience=4), "depth": 2},
    **{f"init {name}": {"init": name, "depth": 2, "trainer": Nodec()} for name in ("random", "kmeans")},
    "init cox": {"init": "cox", "leaf": "spline_po", "depth": 2, "trainer": Nodec()},
    "init cox, hazard": {"init": "cox", "leaf": "spline_ph", "trainer": NodecJoint()},
    "depth 0": {"depth": 0, "leaf": "weibull"},
    "depth 3": {"depth": 3, "leaf": "exponential", "n_starts": 1},
    "prediction mixture": {"prediction": "mixture", "depth": 2, "leaf": "weibull"},
    "prediction mixture, spline": {"prediction": "mixture", "leaf": "spline_ph"},
    "missing": {"missing_numbers": "median", "missing_categories": "most_frequent"},
    "float32": {"dtype": "float32"},
    "weights and entry": {"fit": ("sample_weight", "entry"), "leaf": "weibull", "trainer": NodecJoint()},
    "fairness l2": {"fairness": "l2", "rho": 0.3, "trainer": Nodec(), "depth": 2, "fit": ("sensitive",)},
    "fairness l2_relaxed": {"fairness": "l2_relaxed", "rho": 0.3, "depth": 2, "fit": ("sensitive",)},
    "curves": {"numeric": {"age": "spline", "marker": "piecewise"}, "interactions": [("age", "stage")]},
    "curves of gates, one way": {"numeric": "log", "gate_numeric": "spline", "monotone": {"age": "up"}},
    "groups": GROUPS | {"depth": 2},
    "groups, one column": GROUPS | {"depth": 3, "leaf": "weibull", "numeric": "spline"},
}


def fit_tree(settings: Mapping[str, Any]) -> SoftEstimator:
    """A soft estimator with some settings of its own."""
    rows = cohort()
    given = {"sample_weight": rows["weight"].to_numpy(), "sensitive": rows["sex"].to_numpy()}
    wanted = settings.get("fit", ())
    arguments = {name: value for name, value in given.items() if name in wanted}
    y = late_target() if "entry" in wanted else target()
    chosen = {name: value for name, value in settings.items() if name != "fit"}
    return soft_tree(**BASE | chosen).fit(features(), y, **arguments)


def tree_case(settings: Mapping[str, Any]) -> Entry:
    """A soft tree."""
    y = late_target() if "entry" in settings.get("fit", ()) else target()
    return describe(fit_tree(settings), features(), y)


def sensitive_column() -> Entry:
    """The group as a column that is taken out of the features; disparities of the tree."""
    frame = features().assign(sex=cohort()["sex"])
    settings = BASE | {"fairness": "l2", "rho": 0.2, "trainer": Nodec()}
    tree = soft_tree(**settings).fit(frame, target(), sensitive="sex")
    data = survival_data(groups=True)
    entry = predictions(tree, features())
    entry |= score_fairness(tree, data, data)
    return entry | {"leaf_table": leaf_table(tree, data)}


def checkpointed() -> Entry:
    """A fit that writes a checkpoint, and one that takes up its end."""
    settings = BASE | {"trainer": Nodec(), "depth": 2}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fit.safetensors"
        trees = [soft_tree(**settings).fit(features(), target(), checkpoint=file) for _ in range(2)]
    return {
        f"{name} {key}": text
        for name, tree in zip(("first", "second"), trees, strict=True)
        for key, text in {"objective_": tree.objective_, **predictions(tree, features())}.items()
    }


def exported_prediction() -> Entry:
    """The file for torch alone predicts what the tree does."""
    tree = fit_tree({"leaf": "weibull"})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tree.pt2"
        export_program(tree, file)
        module = torch.export.load(file).module()
    names = tree.preprocessor_.feature_names_out
    x = np.random.default_rng(5).normal(size=(10, len(names)))
    x[0, 0] = np.nan
    curves = module(torch.as_tensor(x), torch.as_tensor(TIMES, dtype=torch.float64))
    return {"names": list(names), "survival": curves}


def tree_sample(make: Callable[..., Any], **options: Any) -> Entry:
    """Curves of the trees of one batch."""
    tree = soft_tree(**BASE | {"n_starts": 3, "trainer": NodecJoint()})
    sample = make(tree, features(), target(), **options)
    rows = features().iloc[:10]
    return {
        "members": sample.members,
        "survival": sample.survival(rows, TIMES),
        "band": np.stack(sample.band(rows.iloc[:3], TIMES, 0.8)),
        "spread": sample.survival(rows.iloc[:3], TIMES).std(axis=0, ddof=1),
    }


# ---------------------------------------------------------------------- searches and evaluation

FLAT = {"leaf": "weibull", "ridge": 1e-3, "numeric": "linear", "random_state": 1}


def cross_validation(groups: bool) -> Entry:
    """Folds, starts and the final model as one batch."""
    settings = BASE | {"n_starts": 3, "trainer": Nodec()}
    result = cross_validate(soft_tree(**settings), survival_data(groups), 3, 2)
    chosen = result.scores[result.scores["chosen"] & (result.scores["part"] == "test")]
    return {
        "folds": result.folds,
        "scores": result.scores,
        "table": result.table(),
        "chosen, c_harrell": chosen["c_harrell"],
        "chosen, ibs_graf": chosen["ibs_graf"],
        "model, metrics_": result.model.metrics_,
        **{f"model, {name}": text for name, text in describe(result.model, features(), target()).items()},
    }


def path_of_fairness() -> Entry:
    """Accuracy against disparity."""
    tree = soft_tree(**BASE | {"fairness": "l2_relaxed"})
    path = fairness_path(tree, survival_data(groups=True), (0.0, 0.1, 1.0), 3, 2)
    return {
        "scores": path.scores,
        "pareto": path.pareto(),
        "tree": path.tree(0.1, 1).predict(features().iloc[:10]),
    }


def scores_of_a_tree() -> Entry:
    """Every way to score a fitted tree."""
    data, tree = survival_data(), fit_tree({"depth": 2, "init": "kmeans"})
    train, test = data.subset(np.arange(80)), data.subset(np.arange(80, N_ROWS))
    y = (test.time, test.event)
    curves = SurvivalScorer("ibs_graf", train=(train.time, train.event))
    return {
        "evaluate": evaluate(tree, train, test),
        "evaluate, tau": evaluate(tree, train, test, metrics=["c_uno", "cd_auc"], tau=40.0),
        "score_predictor": score_predictor(tree, test, train),
        "score_predictor, thin": score_predictor(tree, train, train, thin=True),
        "SurvivalScorer": curves(tree, test.frame, y),
    }


def baseline(name: str) -> Entry:
    """A model to compare with: its settings, and its curves where its package is installed."""
    made = make_baseline(name)
    entry = {"settings": json.dumps(BaselineModel(name, made, 0).settings(), sort_keys=True, default=str)}
    try:
        made.check()
    except ConfigError as error:
        return entry | {"curves": f"not recorded: {error}".replace(sys.executable, "python")}
    data = survival_data()
    curves = made.fit(data, Schema.of(data.frame), 4).falling_curves(data.frame, np.array(TIMES))
    return entry | {"curves": np.asarray(curves), "ten rows": np.asarray(curves)[:10]}


# ---------------------------------------------------------------------- exact trees


def exact_survival(kind: type[Any] = OptimalSurvivalTree, **settings: Any) -> Entry:
    """An exact survival tree, or a search for its size."""
    given = {"max_depth": 2, "min_leaf": 8, "min_events": 2, **settings}
    return describe(kind(**given).fit(features(), target()), features(), target())


def exact_classifier(weighted: bool = False, **settings: Any) -> Entry:
    """An exact classification tree of the event up to a horizon."""
    labels, weights = horizon_labels(*target(), horizon=HORIZON)
    weights = np.round(weights * 2**10) / 2**10 if weighted else (weights > 0) * 1.0
    tree = OptimalTreeClassifier(**{"max_depth": 2, "min_leaf": 5, **settings})
    groups = cohort()["sex"].to_numpy() if "fairness" in settings else None
    tree.fit(features(), labels, sample_weight=weights, sensitive=groups)
    return describe(tree, features(), labels)


def exact_stages() -> Entry:
    """An exact classification tree of three classes named by text."""
    known = cohort()["stage"].notna().to_numpy()
    frame = cohort().loc[known, ["age", "marker", "time", "dose"]]
    tree = OptimalTreeClassifier(max_depth=2, objective="balanced", binarize="quantiles", leaf_penalty=0.01)
    stage = cohort().loc[known, "stage"].to_numpy()
    return describe(tree.fit(frame, stage), frame, stage)


def exact_regressor(**settings: Any) -> Entry:
    """An exact regression tree."""
    tree = OptimalTreeRegressor(**{"max_depth": 2, "min_leaf": 5, **settings})
    dose = cohort()["dose"].to_numpy()
    tree.fit(features(), dose, sample_weight=cohort()["weight"].to_numpy())
    return describe(tree, features(), dose)


def exact_policy(method: Any, **settings: Any) -> Entry:
    """An exact policy tree from scores of the given kind."""
    rows = cohort()
    predicted = np.stack([rows["dose"] - k * rows["marker"] for k in range(3)], axis=1)
    scores = policy_scores(
        method,
        treatment=rows["treatment"].to_numpy(),
        outcome=rows["dose"].to_numpy(),
        propensity=np.full(N_ROWS, 0.25) + 0.1 * rows["smoker"].to_numpy(),
        predicted=predicted,
    )
    named = pd.DataFrame(scores, columns=["none", "low", "high"])
    tree = OptimalPolicyTree(**{"max_depth": 2, "min_leaf": 5, **settings}).fit(features(), named)
    return {"policy_scores": scores, **describe(tree, features(), named)}


def questions(preset: Any, n_columns: int = 12) -> pd.DataFrame:
    """Columns of 0 and 1."""
    asked = Binarizer(preset).fit_transform(features(), target()[1].astype(float))
    return pd.DataFrame(asked).iloc[:, :n_columns]


def exact_task(make: Callable[[Any, Any], Any]) -> Entry:
    """The solution of a task by itself."""
    solution = solve(questions("quantiles"), make(*target()), 3, min_leaf=6, leaf_penalty=0.01)
    return {
        "loss": solution.loss,
        "certificate": solution.certificate,
        "table": solution.table(),
        "path": solution.path(),
        "tree": solution.tree(),
        "decisions": np.asarray(solution.decisions()),
    }


def questions_case(preset: Any) -> Entry:
    """The questions that columns become."""
    table = questions(preset, 10_000)
    return {"names": list(table.columns), "values": table.to_numpy()}


# ---------------------------------------------------------------------- estimated penalties, every outcome


def _causes() -> Any:
    """Outcome with two causes."""
    draws = np.random.default_rng(5)
    return np.where(target()[1], draws.integers(1, 3, N_ROWS), 0)


def _cut_rows() -> tuple[pd.DataFrame, Surv]:
    """Rows cut in two at half of the time: start-stop rows, the marker is larger in the later."""
    time, event = target()
    early = features().assign(marker=features()["marker"].fillna(0.0))
    later = early.assign(marker=early["marker"] + 0.5)
    ids = np.tile(np.arange(N_ROWS), 2)
    entry = np.concatenate([np.zeros(N_ROWS), time / 2])
    stop = np.concatenate([time / 2, time])
    happened = np.concatenate([np.zeros(N_ROWS, bool), event])
    return pd.concat([early, later], ignore_index=True), Surv(stop, happened, entry=entry, id=ids)


OUTCOMES: dict[str, Callable[[], Any]] = {
    "right-censored": lambda: Surv(*target()),
    "weights and entry": lambda: Surv(
        *target(), entry=cohort()["entry"].to_numpy(), weight=cohort()["weight"].to_numpy() + 0.5
    ),
    "causes": lambda: Surv(target()[0], _causes(), causes=("one", "two")),
    "intervals": lambda: Surv.interval(0.8 * target()[0], np.where(target()[1], target()[0], np.inf)),
}
MODELS: dict[str, Callable[[], Any]] = {
    "regression weibull": lambda: SurvivalRegression("weibull"),
    "regression spline": lambda: SurvivalRegression("spline_ph", columns=Columns(numeric="linear")),
    "tree": lambda: PrognosticTree(random_state=0),
    "tree depth 1 log-normal": lambda: PrognosticTree(leaf="log_normal", depth=1, random_state=0),
}


def _curves(model: Any, X: pd.DataFrame) -> Entry:
    """Predictions, of causes too."""
    entry = predictions(model, X)
    if hasattr(model, "predict_cumulative_incidence"):
        try:
            entry["incidence"] = np.asarray(model.predict_cumulative_incidence(X, TIMES))
        except (SstorchError, ValueError) as error:
            entry["incidence"] = f"refused: {error}"
    return entry


def estimated(make: Callable[[], Any], outcome: str) -> Entry:
    """A model with estimated penalties: predictions, likelihood, coefficients, groups, validation."""
    y = OUTCOMES[outcome]()
    model = make().fit(features(), y)
    entry: Entry = {"log_likelihood": model.log_likelihood(features(), y), **_curves(model, features())}
    tables: dict[str, Callable[[], Any]] = {}
    if isinstance(model, SurvivalRegression):
        tables["coefficients"] = lambda: inference.coefficients(model)
    elif outcome != "intervals":
        tables["groups"] = lambda: group_table(model, features(), y)
    if outcome in ("right-censored", "causes"):
        tables["evaluate"] = lambda: evaluate(model, (features(), y), (features(), y))
        tables["validate"] = lambda: validate(model, features(), y, horizon=HORIZON).to_frame()
    for name, table in tables.items():
        entry[name] = table()
    return entry


def start_stop(make: Callable[[], Any]) -> Entry:
    """A model of rows whose covariates change."""
    X, y = _cut_rows()
    model = make().fit(X, y)
    entry = {"log_likelihood": model.log_likelihood(X, y), "score": model.score(X, y)}
    return entry | {
        "survival": np.asarray(model.predict_survival_function(X[:20], TIMES, after=1.0)),
    }


def data_set(name: str, make: Callable[[], Any]) -> Entry:
    """A model of one of the data sets of the package."""
    data = load_dataset(name)
    model = make().fit(data.frame, data.y)
    times = np.quantile(data.time, [0.25, 0.5, 0.75])
    return {
        "log_likelihood": model.log_likelihood(data.frame, data.y),
        "survival": np.asarray(model.predict_survival_function(data.frame[:50], times)),
    }


def many_levels() -> Entry:
    """A category of many levels, stored as codes."""
    draws = np.random.default_rng(8)
    level = draws.integers(0, 40, 600)
    time = draws.exponential(np.exp(0.4 * draws.normal(size=40)[level])) + 0.01
    X = pd.DataFrame({"x": draws.normal(size=600), "centre": pd.Categorical(level.astype(str))})
    model = SurvivalRegression("weibull").fit(X, (time, draws.uniform(size=600) < 0.7))
    return {"survival": np.asarray(model.predict_survival_function(X, [0.5, 1.0]))}


ESTIMATED: dict[str, Case] = {
    **{
        f"{model}, {outcome}": partial(estimated, make, outcome)
        for (model, make), outcome in itertools.product(MODELS.items(), OUTCOMES)
    },
    **{f"{model}, start-stop": partial(start_stop, make) for model, make in MODELS.items()},
    **{
        f"{model}, {name}": partial(data_set, name, make)
        for (model, make), name in itertools.product(MODELS.items(), ("gbsg2", "whas500"))
    },
    "many levels": many_levels,
}

LIKELIHOOD, BRIER = "log_likelihood", "integrated_brier"
SCORES = ("misclassification", "balanced", "f1", "mcc", "balanced_accuracy", "auc")

SOFT: dict[str, Case] = {
    **{name: partial(tree_case, settings) for name, settings in TREES.items()},
    "fairness, sensitive column": sensitive_column,
    "checkpoint": checkpointed,
    "export_prediction": exported_prediction,
    "bootstrap_trees": partial(tree_sample, bootstrap_trees, n_resamples=5),
}
SELECTION: dict[str, Case] = {
    "cross_validate": partial(cross_validation, groups=False),
    "cross_validate, groups": partial(cross_validation, groups=True),
    "fairness_path": path_of_fairness,
    "scores": scores_of_a_tree,
    **{f"baseline {name}": partial(baseline, name) for name in sorted(BASELINES)},
}
EXACT: dict[str, Case] = {
    **{
        f"survival, {objective}, {preset}": partial(exact_survival, objective=objective, binarize=preset)
        for objective, preset in itertools.product(
            (LIKELIHOOD, BRIER), ("surtree", "osst", "quantiles", "boosted")
        )
    },
    "survival, proportional hazards": partial(exact_survival, leaf_curve="proportional_hazards", max_depth=3),
    "survival, ipcw, buckets": partial(
        exact_survival, objective=BRIER, leaf_curve="ipcw", search=Search(n_buckets=20)
    ),
    "survival, leaf penalty": partial(
        exact_survival, leaf_penalty=2.0, max_nodes=2, binarize=Binarizer("all")
    ),
    **{
        f"survival cv, {choose}": partial(exact_survival, OptimalSurvivalTreeCV, choose=choose, n_folds=3)
        for choose in ("nodes", "depth", "budget")
    },
    "survival cv, integrated_brier": partial(
        exact_survival, OptimalSurvivalTreeCV, objective=BRIER, n_folds=3
    ),
    **{f"classifier, {name}": partial(exact_classifier, objective=name) for name in SCORES},
    "classifier, weights": partial(exact_classifier, weighted=True, leaf_penalty=0.01, max_depth=3),
    "classifier, cost matrix": partial(exact_classifier, cost_matrix=[[0.0, 1.0], [3.0, 0.0]]),
    "classifier, feature costs": partial(
        exact_classifier,
        feature_costs={"marker": 0.02, "stage": 0.01},
    ),
    **{
        f"classifier, {name}": partial(exact_classifier, fairness=name, max_disparity=0.1)
        for name in ("demographic_parity", "equal_opportunity")
    },
    "classifier, three classes": exact_stages,
    "regressor": exact_regressor,
    "regressor, penalty": partial(exact_regressor, leaf_penalty=0.05, max_depth=3, binarize="quantiles"),
    **{f"policy, {method}": partial(exact_policy, method) for method in ("direct", "ipw", "doubly_robust")},
    "task log-likelihood": partial(exact_task, LogLikelihood),
    "task integrated Brier": partial(exact_task, IntegratedBrier),
    **{
        f"questions {p}": partial(questions_case, p)
        for p in ("surtree", "osst", "all", "quantiles", "boosted")
    },
}
