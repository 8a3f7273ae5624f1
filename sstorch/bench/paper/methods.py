"""The Methods of a paper, in sentences whose numbers are those of a run; what it cannot know is a gap."""

from __future__ import annotations

import math

import numpy as np

from sstorch.bench.peers import COX, FOREST, ONE_LEAF
from sstorch.bench.performance import title_of
from sstorch.bench.report.run import Run
from sstorch.document import Paragraph, Section, listed
from sstorch.groups.table import interval_text
from sstorch.metrics.follow_up import median_follow_up
from sstorch.metrics.groups import Estimate
from sstorch.soft.prognostic import PrognosticTree
from sstorch.soft.regression import SurvivalRegression

# Hazard families in words; others have their name.
_FAMILIES = {
    "exponential": "an exponential model",
    "weibull": "a Weibull model",
    "log_logistic": "a log-logistic model",
    "log_normal": "a log-normal model",
    "gompertz": "a Gompertz model",
    "spline_ph": "a proportional hazards model whose log cumulative baseline hazard is a natural cubic "
    "spline of log time (Royston and Parmar, 2002)",
    "spline_po": "a proportional odds model whose log cumulative baseline odds are a natural cubic spline of "
    "log time (Royston and Parmar, 2002)",
}
_KINDS = {
    "numbers": {"mean": "the mean", "median": "the median"},
    "categories": {
        "zeros": "by no category (all indicators zero)",
        "most_frequent": "by the most frequent category",
    },
}
_CONVENTIONS = {
    "c_harrell": "time-dependent concordance of the predicted curves (Harrell; Antolini et al., 2005)",
    "c_uno": "concordance weighted by inverse probability of censoring (Uno et al., 2011)",
    "ibs_graf": "integrated Brier score with censoring weights of the training rows, from zero to the last "
    "time of the test fold (Graf et al., 1999)",
    "ici_pseudo": "integrated calibration index from smoothed pseudo-observations (Austin et al., 2020)",
    "log_likelihood": "log-likelihood per row, of models that have a density",
    "c_wolbers": "concordance of the cumulative incidence (Wolbers et al., 2009)",
    "ibs": "integrated Brier score of the cumulative incidence",
    "ibs_turnbull": "integrated Brier score with Turnbull's estimate in the place of unknown outcomes",
}


def gap(text: str) -> str:
    """Placeholder for text of the authors, marked in pages and documents."""
    return f"[to be completed: {text}]"


def methods(run: Run) -> Section:
    """The Methods of a run."""
    parts = {
        "Source of data and participants": _source(run),
        "Outcome": _outcome(run),
        "Predictors and missing values": _predictors(run),
        "Sample size": _sample_size(run),
        "Model": _model(run),
        "Validation": _validation(run),
        "Performance measures": _measures(run),
        "Software": _software(run),
    }
    blocks = [Section(title, [Paragraph(" ".join(texts))]) for title, texts in parts.items()]
    return Section("Methods", list(blocks))


def follow_up_text(run: Run) -> str:
    """Median follow-up with limits, by reverse Kaplan-Meier; empty if times are intervals."""
    if run.data.intervals is not None:
        return ""
    found = median_follow_up(run.data.weighted_y.any_cause())
    if not math.isfinite(found.value):
        return "Median follow-up by reverse Kaplan-Meier was not reached."
    return f"Median follow-up by reverse Kaplan-Meier was {with_limits(run, found)}."


def with_limits(run: Run, found: Estimate[float]) -> str:
    """A time with its unit and 95 % confidence limits."""
    text = interval_text(found.value, found.lower, found.upper).replace("(", "(95 % CI ", 1)
    return text.replace(" (", f"{run.in_unit} (", 1)


def _source(run: Run) -> list[str]:
    subjects, n = run.data.n_subjects, len(run.data)
    rows = f"{n} rows of {subjects} subjects" if subjects != n else f"{n} subjects"
    return [
        f"The data set {run.name} has {rows}.",
        gap("source of the data, setting, dates of enrolment and of the end of follow-up"),
        gap("eligibility, and treatments received"),
    ]


def _outcome(run: Run) -> list[str]:
    data, dataset = run.data, run.config["dataset"]
    unit = f" in {run.model.time_unit_}" if run.model.time_unit_ else ""
    named = dataset["path"] is not None
    if data.intervals is not None:
        what = "the time of an event that is known up to an interval"
        columns = f"{dataset['lower']} and {dataset['upper']}"
    elif data.causes is not None:
        what = f"the time to the first of the competing events {listed(list(data.cause_names))}"
        columns = f"{dataset['time']} and {dataset['cause']}"
    else:
        what = "the time to each event" if data.outcome_type.recurrent else "the time to an event"
        columns = f"{dataset['time']} and {dataset['event']}"
    texts = [f"The outcome is {what}{unit}{f' (columns {columns})' if named else ''}."]
    if not run.model.time_unit_:
        texts.append(gap("unit of time"))
    texts.append(gap("definition of the event and of time zero, and how the event was assessed"))
    if data.outcome_type.recurrent:
        texts.append("Events recur: a subject stays at risk after an event (Andersen and Gill, 1982).")
    if late := int(np.count_nonzero(data.entry)):
        texts.append(f"Entry is delayed in {late} rows, which count as at risk from their entry on.")
    if data.time_varying:
        texts.append(
            "Covariates are time-varying, in start-stop rows; consecutive rows of a subject with equal "
            f"covariates are merged, which leaves {len(data.joined())} rows."
        )
    if data.n_moved:
        texts.append(f"Times of zero in {data.n_moved} rows were moved to {data.zero_time:g}.")
    if data.intervals is None:
        texts.append("Follow-up is described by reverse Kaplan-Meier (Schemper and Smith, 1996).")
    if np.ptp(data.sample_weight):
        texts.append("Rows have weights.")
    return texts


def _predictors(run: Run) -> list[str]:
    data, columns = run.data, run.model.columns
    names = data.feature_names
    texts = [f"Candidate predictors are {listed(names) if len(names) <= 40 else f'{len(names)} columns'}."]
    texts.append(gap("how and when each predictor was measured"))
    missing = data.frame.isna().sum()
    if not missing.any():
        return [*texts, "No predictor has missing values."]
    counts = [f"{name} in {count} rows" for name, count in missing[missing > 0].items()]
    shown = listed(counts[:20]) + (f" and {len(counts) - 20} further columns" if len(counts) > 20 else "")
    complete = int((~data.frame.isna().any(axis=1)).sum())
    return [
        *texts,
        f"Values are missing of {shown}; {complete} of {len(data)} rows are complete.",
        f"A missing number was replaced by {_KINDS['numbers'][columns.missing_numbers]} of the training "
        f"rows, "
        f"a missing category {_KINDS['categories'][columns.missing_categories]}, within each fold.",
        *(
            [f"Missing values of {listed([*columns.missing])} are a level of their own."]
            if columns.missing
            else []
        ),
        gap("why values are missing"),
    ]


def _sample_size(run: Run) -> list[str]:
    data = run.data
    encoded = run.model._tree.preprocessor.leaf_features
    text = f"All {data.n_events} events were used, with {len(encoded)} encoded features of the predictors."
    return [text, gap("how the sample size was reached, and whether it suffices")]


def _model(run: Run) -> list[str]:
    model, tree = run.model, run.model._tree
    families = dict.fromkeys(own.family.name for own in tree.hazards.values())
    family = " and ".join(_FAMILIES.get(name, f"a {name.replace('_', ' ')} model") for name in families)
    depth = tree.module.topology.depth
    if isinstance(model, SurvivalRegression) or not depth:
        texts = [f"The model is a survival regression, {family}."]
    elif isinstance(model, PrognosticTree):
        texts = [
            f"The model is a prognostic tree of depth {depth}; in each group the outcome follows {family}.",
            "Its gates were distilled from the regression without groups, from what it predicts or from its "
            "residuals; the marginal likelihood decides between the regression and each set of groups.",
        ]
        texts.append(
            f"A gate has {model.gate_features} predictor{'s' * (model.gate_features != 1)}."
            if model.gate_features
            else "A gate has all predictors."
        )
        if model.min_leaf:
            texts.append(f"A group has at least {100 * model.min_leaf:g} % of the training rows.")
    else:
        trainer = type(model._batch_settings().trainer).__name__
        texts = [
            f"The model is a soft survival tree of depth {depth}, in whose leaves the outcome follows "
            f"{family}; gates and leaves were trained on the outcomes ({trainer})."
        ]
    curved = dict.fromkeys(f.columns[0] for f in tree.preprocessor.leaf_features if f.kind == "curve")
    if curved:
        texts.append(f"Effects of {listed(list(curved))} are curves; other effects are linear.")
    choice = model.choice_
    if choice is not None:
        freedom = [
            f"{sum(each.freedom):.1f}{f' for {cause}' if len(choice.estimations) > 1 else ''}"
            for cause, each in choice.estimations.items()
        ]
        texts.append(
            "Penalties were estimated by maximum marginal likelihood, without a search; the effective "
            "degrees "
            f"of freedom of the model of all rows are {listed(freedom)}."
        )
        if math.isfinite(choice.gain):
            texts.append(
                f"In all rows {choice.finding}; the evidence of the best groups less that of the regression "
                f"is {choice.gain:+.1f} nats."
            )
    else:
        changed = ", ".join(f"{name} {value}" for name, value in model.penalties.changed.items())
        texts.append(f"Penalties were fixed ({changed or 'the defaults of the software'}).")
    return texts


def _validation(run: Run) -> list[str]:
    folds, seed = int(run.folds.max()) + 1, run.config["cv"]["seed"]
    by = "causes" if run.data.causes is not None else "events"
    texts = [
        f"Internal validation is by {folds}-fold cross-validation, folds stratified by {by} (seed {seed})"
        f"{', all rows of a subject in one fold' if run.data.subject is not None else ''}.",
        "All statistics of preprocessing, penalties and gates come from the training rows of a fold.",
        "The final model was trained on all rows.",
    ]
    if run.peers is None:
        return [*texts, "No reference models were scored."]
    known = {
        ONE_LEAF: "the regression of the same family without groups",
        COX: "a Cox regression with a ridge penalty",
        FOREST: "a random survival forest",
    }
    names = [str(name) for name in dict.fromkeys(run.peers["model"]) if name != "tree"]
    texts.append(f"Reference models on the same folds are {listed([known.get(n, n) for n in names])}.")
    texts.append(
        "Confidence intervals of means over folds, and of differences between models paired by fold, are "
        "those of the corrected resampled t-test (Nadeau and Bengio, 2003)."
    )
    return texts


def _measures(run: Run) -> list[str]:
    texts = []
    if run.peers is not None:
        scores = [str(name) for name in run.peers if name not in ("model", "fold")]
        titles = [(name.partition(":")[0], title_of(name)) for name in scores]
        names = [_CONVENTIONS.get(name, f"{title[0].lower()}{title[1:]}") for name, title in titles]
        texts.append(f"Scores of held-out rows are the {listed(list(dict.fromkeys(names)))}.")
    if not run.data.entry.any():
        texts.append("Calibration is shown of the predictions for held-out rows.")
    texts.append(
        "Characteristics of groups are compared by standardised differences (Yang and Dalton, 2012)."
    )
    if run.data.causes is not None:
        texts.append("Cumulative incidences of groups are Aalen-Johansen estimates.")
    elif run.data.intervals is not None:
        texts.append("Survival of groups is estimated by Turnbull's method.")
    else:
        texts.append(
            "Survival of groups is estimated by Kaplan-Meier with limits on the scale of log(-log S), "
            "medians with limits of Brookmeyer and Crowley (1982). Hazard ratios of groups are those of a "
            "Cox model of the groups alone."
        )
        if run.data.uneven_weight is not None or run.data.outcome_type.recurrent:
            texts.append("Variances are robust, by subject (Lin and Wei, 1989).")
    return texts


def _software(run: Run) -> list[str]:
    versions = run.status["versions"]
    named = listed([f"{name} {version}" for name, version in versions.items()])
    return [f"The analysis was carried out with {named}.", gap("where code and data can be had")]
