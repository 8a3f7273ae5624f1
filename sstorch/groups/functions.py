"""Functions of a fitted tree: tables of groups, their stability, validation, recalibration, and a model card.

Trees are soft or exact; which table and which test is made follows from the type of the outcome they were
trained on, one event or competing causes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from sstorch._types import IntArray
from sstorch._version import __version__
from sstorch.base import check_times
from sstorch.checks import check_choice, check_integer, check_tree
from sstorch.data import SurvivalData, folds_of
from sstorch.data.folds import split, train_outside_score_inside
from sstorch.data.subjects import CONSTANT_COVARIATES
from sstorch.data.time_unit import round_horizons
from sstorch.document import Block, Code, Document, Section, as_table, number, to_html, to_markdown
from sstorch.exceptions import ConfigError, DataError
from sstorch.groups.hooks import RESULTS, GroupedTree, PartitionOf
from sstorch.groups.recalibration import Recalibrate, recalibration_texts, recalibrations
from sstorch.groups.stability import Stability, agreement, resamples
from sstorch.groups.table import WEIGHTED, table_of
from sstorch.groups.validation import GroupValidation, concordance_of_rows, held_out_groups

GroupedTreeT = TypeVar("GroupedTreeT", bound=GroupedTree)
LIMITS = (
    "It describes these rows: for others, such as of another place or time, it has to be validated anew.",
    "Nothing in it is causal: a gate on a treatment shows who survives longer, not what the treatment does.",
    "Curves take censoring to be independent of what happens later, given the columns.",
)
_TIME_VARYING = (
    "Covariates are time-varying: one row does not determine survival from time zero. Survival is predicted "
    f"for a subject at risk at a given time, {CONSTANT_COVARIATES}."
)


def group_table(
    tree: GroupedTree,
    X: object,
    y: object,
    horizons: npt.ArrayLike | None = None,
    n_resamples: int = 0,
    level: float = 0.95,
    sample_weight: object = None,
) -> pd.DataFrame:
    """Estimate survival or incidences of each group, observed and predicted, with confidence intervals.

    The table contains Kaplan-Meier medians and survival, or the Aalen-Johansen incidence of each competing
    cause. Start-stop rows are grouped by subject.

    On held-out rows the estimates have no selection bias. On the training rows differences between groups are
    too large, since splits were placed where these rows differ. ``n_resamples`` corrects this. Each resample
    refits the tree; its optimism is .632 times the difference between the Kaplan-Meier curves of its groups
    on drawn and on not drawn rows, as in Efron's estimate of prediction error. Groups of different trees are
    matched by their order of risk (mean of their curves): a group has the optimism of the groups at the same
    quantiles of all rows. The mean optimism over resamples, at each time, is subtracted from the curve or
    incidence; medians are computed from the corrected curve. Limits are those of the corrected curve on the
    scale of log(-log S), for incidences log(-log(1 - F)), widened on both sides by the correction: they allow
    for an optimism between zero and twice the estimate.

    Uncorrected intervals are pointwise, on the scale of log(-log S) with Greenwood's variance. The interval
    of the median contains the times at which the band contains 1/2 (Brookmeyer and Crowley). Intervals of
    incidences are on the scale of log(-log F), with the variance of
    :func:`~sstorch.metrics.aalen_johansen_error`, as R's ``survfit(conf.type="log-log")``.

    Corrected intervals are for groups, not for single subjects, and pointwise, not simultaneous. In
    simulations of soft trees, 95 % intervals of medians had coverage 96 to 99 % with correction and 58 to 82
    % without (``experiments/groups``). If groups do not differ at all, some bias remains. The correction
    ignores earlier choices, such as of parameters; use test rows for these.

    Args:
        tree: fitted.
        X: rows; with ``n_resamples`` those of training.
        y: outcome of the rows, as in ``fit``.
        horizons: times of survival or incidences; None for two round times near the tertiles of the training
            event times.
        n_resamples: number of resamples for the correction, 50 or more; 0 for no correction.
        level: level of the intervals.
        sample_weight: (n,), >= 0. Intervals then use the infinitesimal jackknife
            (:class:`~sstorch.metrics.KaplanMeierBand`) and do not depend on the scale of the weights.
            Resamples draw rows with their weights.

    Returns:
        One row per group with rows, indexed by ``group``, with competing causes by ``group`` and ``cause``;
        columns have two levels, ``quantity`` and ``statistic``. Unweighted ``rows`` and ``events``; of one
        event ``median`` with ``estimate``, ``lower`` and ``upper``, +inf if not reached; ``S(t)``, or
        ``F(t)`` of a cause, with these and ``model``, the weighted mean prediction. Estimates are nan beyond
        the last observed time; limits of an incidence are nan if it is 0 or 1; interval-censored times have
        no estimates. With resamples there are also ``corrected``, ``corrected lower`` and ``corrected
        upper``.

    Raises:
        DataError: the data are invalid, or hold too few events.
        ConfigError: an argument is out of range.

    References:
        Efron (1983), "Estimating the error rate of a prediction rule", Journal of the American Statistical
        Association 78, 316-331. Harrell (2015), Regression Modeling Strategies, 2nd edition, section 5.3.
        LeBlanc and Crowley (1993), "Survival trees by goodness of split", Journal of the American Statistical
        Association 88, 457-467, on the correction of split statistics.
    """
    check_tree(tree, "_can_divide")
    data = tree._rows(X, y, sample_weight)
    at = None if horizons is None else check_times(horizons)
    if check_integer("n_resamples", n_resamples, 0) == 0:
        return table_of(tree, data, at, level)
    splits, draws = resamples(data, n_resamples, tree._seed)
    groups = np.stack([groups_of(data.frame).leaf for groups_of in tree._trained(data, splits)])
    tree._chosen.group_table_ = table = table_of(tree, data, at, level, (groups, draws))
    return table


def stability(
    tree: GroupedTree,
    X: object,
    y: object,
    n_resamples: int = 50,
    sample_weight: object = None,
) -> Stability:
    """Estimate the stability of groups and of their columns over resamples of the subjects.

    Each resample trains a tree with the parameters of the estimator; the weight of a subject is multiplied by
    the number of draws, and an exact search chooses the size again. ``print`` and ``tree.summary()`` show the
    result; :func:`~sstorch.plots.plot_stability` draws it. A loaded soft tree uses the default trainer.

    ``min_leaf`` and ``min_events`` of an exact tree count the distinct rows of a resample, about 63 %.

    Args:
        tree: fitted.
        X: training rows.
        y: outcome of the rows, as in ``fit``.
        n_resamples: number of resamples.
        sample_weight: (n,), >= 0, as in ``fit``.

    Raises:
        DataError: the data are invalid, or a resample has no event, or no event of a cause.
        ConfigError: ``n_resamples`` is not an integer >= 1.

    References:
        Hubert and Arabie (1985), "Comparing partitions", Journal of Classification 2, 193-218. Philipp,
        Rusch, Hornik and Strobl (2018), "Measuring the stability of results from supervised statistical
        learning", Journal of Computational and Graphical Statistics 27, 685-700.
    """
    check_tree(tree, "_can_divide")
    data = tree._rows(X, y, sample_weight)
    splits, _ = resamples(data, n_resamples, tree._seed)
    others = [groups_of(data.frame) for groups_of in tree._trained(data, splits)]
    found = agreement(tree._partition(data.frame), others, list(data.frame.columns))
    tree._chosen.stability_ = found
    return found


def validate_groups(
    tree: GroupedTree,
    X: object,
    y: object,
    n_folds: int = 5,
    sample_weight: object = None,
    random_state: int = 0,
    n_permutations: int = 0,
) -> GroupValidation:
    """Test whether groups obtained by the same procedure differ on held-out rows.

    Trees with the parameters of the estimator are trained outside each fold and assign groups to the held-out
    rows. Folds keep the rows of a subject together and are stratified by event or cause. A log-rank test,
    stratified by fold, compares survival; with competing causes it compares each cause-specific hazard, and
    Gray's test each cumulative incidence. ``tree.summary()`` shows the result, which is saved with the tree.
    An exact search chooses the size again outside each fold. For a soft tree, earlier choices, such as of
    parameters, are not repeated; a loaded tree uses the default trainer.

    Args:
        tree: fitted.
        X: training rows.
        y: outcome of the rows, as in ``fit``.
        n_folds: number of folds.
        sample_weight: (n,), >= 0, as in ``fit``. Tests then use the robust variance, which does not depend
            on the scale of the weights (:func:`~sstorch.metrics.logrank_test`).
        random_state: seed of the folds.
        n_permutations: number of permutations of the covariates against the outcomes. Each permutation
            retrains all trees; 99 take about a hundred times as long. The p-value of the concordance is then
            calibrated, unlike that of the log-rank test.

    Raises:
        DataError: the data are invalid or have too few events, or events of a cause, for the number of folds;
            or subjects with several rows are to be permuted.
        ConfigError: the tree has depth 0, or an argument is out of range.

    References:
        Gray (1988), Annals of Statistics 16, 1141-1154. Simon, Subramanian, Li and Menezes (2011), "Using
        cross-validation to evaluate predictive accuracy of survival risk classifiers based on
        high-dimensional data", Briefings in Bioinformatics 12, 203-214.
    """
    check_tree(tree, "_can_divide")
    if not tree._can_divide:
        raise ConfigError("a tree of depth 0 has one group: there is nothing to validate")
    data = tree._rows(X, y, sample_weight)
    data.refuse_intervals("validate_groups")
    seed, count = (
        check_integer("random_state", random_state, 0),
        check_integer("n_permutations", n_permutations, 0),
    )
    folds = folds_of(data, check_integer("n_folds", n_folds, 2), seed)
    if count and data.subject is not None:
        raise DataError(
            "id: covariates of subjects with several rows cannot be exchanged; use n_permutations=0"
        )

    def groups_of(rows: SurvivalData) -> GroupValidation:
        def train(splits: list[SurvivalData]) -> Iterator[tuple[int, PartitionOf]]:
            yield from enumerate(tree._trained(rows, splits))

        parts = train_outside_score_inside(split(rows, folds), train, lambda _, of: of(rows.frame).leaf)
        return held_out_groups(rows, folds, np.stack(list(parts)))

    found = groups_of(data)
    if count:
        rng = np.random.default_rng((seed, count))
        null = [groups_of(_permuted(data, rng.permutation(len(data)))) for _ in range(count)]
        found = found.against(null)
    tree._chosen.group_validation_ = found
    return found


def _permuted(data: SurvivalData, order: IntArray) -> SurvivalData:
    """The same outcomes with the covariates of other rows."""
    rows = data.subset(np.arange(len(data)))
    rows.frame = data.frame.iloc[order].reset_index(drop=True)
    rows.groups = None if data.groups is None else data.groups.subset(order)
    return rows


def concordance_of_groups(tree: GroupedTree, X: object, y: object, train: tuple[object, object]) -> float:
    """Compute the concordance of a model with the group as only covariate.

    The prediction is the Kaplan-Meier curve of the training rows of the group; with competing causes the
    Aalen-Johansen incidences, with concordance averaged over causes as in ``tree.score``. 0.5 means no
    difference between the groups. To test for a difference on these rows, use ``metrics.logrank_test(y,
    tree.apply(X))`` or, for causes, ``metrics.gray_test``.

    Args:
        tree: fitted.
        X: rows, preferably not the training rows.
        y: outcome of the rows, as in ``fit``, with its weights and entry times.
        train: X and y of the training rows.

    Raises:
        DataError: the data are invalid, or no two rows are comparable.
    """
    check_tree(tree, "_can_divide")
    rows, training = tree._rows(X, y), tree._rows(*train)
    leaf, known = (tree._leaf_of(data.frame) for data in (rows, training))
    return concordance_of_rows(leaf, rows, known, training)


def recalibrate(
    tree: GroupedTreeT,
    X: object,
    y: object,
    how: Recalibrate = "intercept",
    sample_weight: object = None,
) -> GroupedTreeT:
    """Recalibrate a fitted tree to another population: groups are unchanged, their survival is re-estimated.

    Soft trees: maximum likelihood on the new rows, with the same change in all leaves. ``"intercept"`` adds a
    constant to the linear predictors, ``"slope"`` also multiplies them by a factor, ``"baseline"`` adds
    constants to the intercept and to every shape parameter.

    Exact trees: ``"intercept"`` multiplies the cumulative hazards of all leaves by the ratio of observed to
    expected events (S becomes S^c), the maximum likelihood estimate of a Poisson model; ``"slope"`` also
    multiplies the log hazard ratios of the leaves and needs ``objective="log_likelihood"``; ``"baseline"``
    estimates the curves of the leaves on the new rows.

    The new tree reports the changes in ``recalibration_`` and ``summary()`` and saves them; its tables of
    nodes or leaves count the new rows. The original tree is unchanged. With competing causes each
    cause-specific hazard is recalibrated with other causes censored, and ``recalibration_`` has one report
    per cause.

    Args:
        tree: fitted soft or exact tree for one event or competing risks, or a search (its chosen tree is
            used).
        X: rows of the new population, with the columns of the tree.
        y: outcome of the rows, as in ``fit``.
        how: see above.
        sample_weight: (n,), >= 0. Standard errors are of the sandwich with w^2, independent of their scale.

    Raises:
        ConfigError: ``how`` is unknown, survival curves of the leaves can increase, or
            an exact tree has no hazard ratios for ``"slope"``.
        DataError: the rows are invalid, have fewer events than parameters or, for ``"baseline"`` of an exact
            tree, a leaf without events.

    References:
        Steyerberg (2019), Clinical Prediction Models, 2nd edition, chapter 20; Janssen et al. (2008), Journal
        of Clinical Epidemiology 61, 76-86, on updating methods.

    Examples:
        >>> from sstorch import PrognosticTree, load_dataset, recalibrate
        >>> data = load_dataset("gbsg2")
        >>> tree = PrognosticTree().fit(data.frame, (data.time, data.event))
        >>> elsewhere = recalibrate(tree, data.frame, (2 * data.time, data.event))  # all live twice as long
        >>> print(elsewhere.recalibration_)
        Recalibrated (intercept) on 686 rows, 299 events; groups as they were
        linear predictor -1.1 (standard error 0.07...)
        observed / expected events 0.49... before, 1.03... after
        log-likelihood of a row -4.16... before, -4.00... after
    """
    check_tree(tree, "_recalibrated")
    check_choice(how, "how", get_args(Recalibrate))
    return tree._recalibrated(tree._rows(X, y, sample_weight), how)


def model_card(
    tree: GroupedTree,
    format: Literal["markdown", "html"] = "markdown",
    validation: pd.DataFrame | None = None,
) -> str:
    """Write the model card of a tree: description, training rows, performance and limitations.

    Args:
        tree: fitted soft or exact tree, for one event or competing causes.
        format: ``"markdown"``, or ``"html"``, a page that needs no network.
        validation: scores on held-out rows: one row per score, with intervals in columns.

    Raises:
        ConfigError: unknown format.
    """
    check_tree(tree, "_card")
    if format not in ("markdown", "html"):
        raise ConfigError(f"format must be 'markdown' or 'html', got {format!r}")
    card = _document(tree, validation)
    return to_markdown(card) if format == "markdown" else to_html(card)


def _document(tree: GroupedTree, validation: pd.DataFrame | None) -> Document:
    facts, chosen = tree._card(), vars(tree._chosen)
    results = [str(chosen[name]) for name in RESULTS if name in chosen]
    results += recalibration_texts(tree._chosen)
    quality = [*_scores(chosen.get("metrics_", {}), validation), *map(Code, results)]
    return Document(
        "Model card",
        f"{facts.title} of {facts.rows} rows",
        [
            Section("Facts", [facts_table(tree)]),
            Section("Groups", [list(facts.groups), Code(facts.rules)]),
            Section("How good it is", quality),
            Section("Limits", [limits_of(tree)]),
            Section("Use", [use_of(tree)]),
        ],
    )


def facts_table(tree: GroupedTree, more: Sequence[tuple[str, str]] = ()) -> pd.DataFrame:
    """Description of the tree, its training rows, and further facts."""
    facts, schema = tree._card(), tree._schema
    unit = f" {tree.time_unit_}" if tree.time_unit_ else ""
    causes = tree.outcome_type_.causes
    predicts = (
        "survival at any time, median and restricted mean time, risk, group"
        if causes is None
        else f"cumulative incidences of {' and '.join(causes)}, survival without any event, group"
    )
    columns = [
        f"{name} ({', '.join(schema.categories[name])})" if name in schema.categories else name
        for name in schema.inputs
    ]
    made = "recalibrated" if recalibrations(tree._chosen) else "trained"
    rows = [
        ("model", facts.kind),
        ("predicts", predicts),
        (f"{made} on", f"{facts.rows} rows, {facts.events}"),
        ("columns", "; ".join(columns)),
        ("times", f"up to {tree.event_times_[-1]:g}{unit}, the last event{facts.beyond}"),
        *facts.more,
        *more,
        ("made with", f"sstorch {__version__}"),
    ]
    return as_table(["", "this model"], rows)


def limits_of(tree: GroupedTree) -> list[str]:
    """Limitations, one sentence each."""
    facts = tree._card()
    weighted = tree.outcome_type_.weighted and WEIGHTED not in facts.groups
    limits = [*LIMITS, *facts.limits, *([WEIGHTED] if weighted else [])]
    return [*limits, *([_TIME_VARYING] if tree.time_varying_ else [])]


def use_of(tree: GroupedTree) -> Code:
    """Lines of Python that predict by a saved tree."""
    horizons = ", ".join(f"{time:g}" for time in round_horizons(tree.event_times_, tree.time_unit_))
    after = ", after=0" if tree.time_varying_ else ""
    method = "predict_cumulative_incidence" if tree.causes_ else "predict_survival_function"
    lines = [
        f'tree = sstorch.{type(tree).__name__}.load("MODEL")',
        'rows = pandas.read_csv("rows.csv")',
        f"tree.{method}(rows, [{horizons}]{after})",
    ]
    return Code("\n".join(lines))


def _scores(scores: Mapping[str, float], validation: pd.DataFrame | None) -> list[Block]:
    blocks: list[Block] = []
    if scores:
        rows = [(name, number(value)) for name, value in scores.items()]
        blocks.append(as_table(["score", "value"], rows, "As they were kept with the tree."))
    if validation is not None:
        texts = [
            [str(name), *(number(float(value)) for value in row)]
            for name, row in zip(validation.index, validation.to_numpy(), strict=True)
        ]
        header = ["score", *map(str, validation.columns)]
        blocks.append(as_table(header, texts, "On rows it was not trained on."))
    if not blocks:
        blocks.append("Not known: no scores of rows that it was not trained on; see sstorch.validate.")
    return blocks
