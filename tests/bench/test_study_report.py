"""The report of a study: results by hand, tests against their definitions, tables, figures, the command."""

import io
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sstorch.bench.report.comparisons import against_paper, compare_folds, fold_section, paper_section
from sstorch.bench.report.results import Results, common, model_of, published_tables
from sstorch.bench.report.study import as_text, average_table, best_of, build_report, score_table
from sstorch.bench.reporting import main, write_document
from sstorch.bench.store import ResultStore, TaskKey
from sstorch.document import Section, to_markdown
from sstorch.exceptions import ConfigError

Cell = tuple[str, str, int | None]  # data set, model, depth


def rows(
    dataset: str,
    model: str,
    depth: int | None,
    values: Mapping[str, list[list[float]]],
    *,
    part: str = "test",
    config: str = "0123456789ab",
    reason: str = "",
    chosen: int = 0,
) -> pd.DataFrame:
    """Rows of a task; values are by metric, then fold, then start."""
    about = {"dataset": dataset, "model": model, "depth": depth, "config": config, "part": part}
    return pd.DataFrame(
        [
            about
            | {"fold": fold, "start": start, "chosen": start == min(chosen, len(starts) - 1)}
            | {"metric": metric, "value": value, "reason": "" if value == value else reason}
            for metric, folds in values.items()
            for fold, starts in enumerate(folds)
            for start, value in enumerate(starts)
        ]
    ).astype({"depth": "Int64"})


def facts(dataset: str, model: str, depth: int | None, **own: Any) -> dict[str, Any]:
    """Record of a task."""
    return {
        "dataset": dataset,
        "model": model,
        "depth": depth,
        "config": "0123456789ab",
        "settings": {"tree.depth": depth} if model.startswith("sst_") else {},
        "seconds": {"fit": 8.0, "score": 0.5},
        "versions": {"sstorch": "1.0", "torch": "2.9"},
        "n_folds": 2,
        "n_starts": 1,
        "seed": 0,
        "device": "cpu",
        "data": "0" * 64,
        "finished": "2026-01-02T03:04:05Z",
    } | own


def results_of(table: pd.DataFrame) -> Results:
    """Results of a table with a usual record of each task."""
    tasks = table[["dataset", "model", "depth"]].drop_duplicates().itertuples(index=False)
    records = [facts(name, model, None if pd.isna(depth) else int(depth)) for name, model, depth in tasks]
    return Results(table, records)


def study(means: Mapping[Cell, float], metric: str = "c_harrell") -> Results:
    """Two folds of one start each, on both parts, around the means given."""
    tables = [
        rows(*cell, {metric: [[mean - 0.01], [mean + 0.01]]}, part=part)
        for cell, mean in means.items()
        for part in ("test", "train")
    ]
    return results_of(pd.concat(tables, ignore_index=True))


def whole_study() -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """Four metrics, four data sets, soft and greedy trees and Cox; one cell absent, one value undefined."""
    models = [("sst_llog", 2), ("sst_po", 2), ("ctree", 2), ("ctree", 3), ("cox", None)]
    bases = {"c_harrell": 0.6, "c_uno": 0.58, "cd_auc": 0.65, "ibs_graf": 0.15}
    tables, records = [], []
    for j, dataset in enumerate(("aids", "gbsg2", "veterans", "whas500")):
        for k, (model, depth) in enumerate(models):
            if (dataset, model) == ("whas500", "cox"):
                continue
            starts = range(3 if model.startswith("sst") else 1)
            for part in ("test", "train"):
                values = {
                    metric: [
                        [base + 0.01 * ((j * 7 + k * 5 + 3 * fold + 2 * start) % 11) for start in starts]
                        for fold in range(3)
                    ]
                    for metric, base in bases.items()
                }
                if (dataset, model, part) == ("aids", "sst_po", "test"):
                    values["c_uno"][1][2] = float("nan")
                reason = "no pair | up to <tau>"
                tables.append(rows(dataset, model, depth, values, part=part, reason=reason, chosen=1))
            records.append(facts(dataset, model, depth, n_folds=3, n_starts=len(starts)))
    return pd.concat(tables, ignore_index=True), records


# ---------------------------------------------------------------------- results


def test_summaries_are_over_the_defined_runs() -> None:
    values = [[0.5, 0.7], [0.6, 0.9], [0.4, np.nan]]
    results = results_of(rows("aids", "sst_llog", 2, {"c_harrell": values}, chosen=1))
    known = np.array([0.5, 0.7, 0.6, 0.9, 0.4])
    (found,) = results.summary("c_harrell").to_numpy()
    np.testing.assert_allclose(found, [known.mean(), known.std(ddof=1), 5, 6])
    (chosen,) = results.summary("c_harrell", chosen=True).to_numpy()
    np.testing.assert_allclose(chosen, [0.8, np.std([0.7, 0.9], ddof=1), 2, 3])
    assert results.by_fold("c_harrell")["sst_llog_d2"].isna().tolist() == [False, False, True]
    rejected = results_of(rows("aids", "cox", None, {"d_calibration_p": [[0.01], [0.2], [0.049], [np.nan]]}))
    assert rejected.summary("d_calibration_p")["mean"].tolist() == [pytest.approx(2 / 3)]


def test_of_several_configurations_the_last_is_reported_with_a_note() -> None:
    old = rows("aids", "cox", None, {"c_harrell": [[0.1], [0.1]]}, config="f" * 12)
    new = rows("aids", "cox", None, {"c_harrell": [[0.7], [0.7]]})
    records = [
        facts("aids", "cox", None),
        facts("aids", "cox", None, config="f" * 12, finished="2025-01-01T00:00:00Z"),
    ]
    results = Results(pd.concat([old, new]), records)
    assert results.means("c_harrell").to_numpy() == pytest.approx(0.7)
    assert results.notes == [
        "aids, cox: several configurations have results; the one finished last is reported."
    ]


def test_names_order_and_selection_of_models() -> None:
    assert model_of("sst_llog,ridge=0.1", 2)["label"] == "Llog (ridge=0.1) D2"
    gated = model_of("sst_po_gated", 1)
    assert (gated["label"], gated["plain"]) == ("PO gated D1", "sst_po")
    table, records = whole_study()
    labels = ["Llog D2", "PO D2", "CTree D2", "CTree D3", "Cox"]
    assert list(Results(table, records).labels.values()) == labels
    one = Results(table[(table["model"] == "ctree") & (table["dataset"] == "gbsg2")], records)
    assert (list(one.models.index), one.datasets) == (["ctree_d2", "ctree_d3"], ["gbsg2"])
    trained = rows("aids", "sst_llog", 2, {"objective": [[3.0]], "c_harrell": [[0.7]]}, part="train")
    assert results_of(trained).metrics == ["c_harrell"]
    with pytest.raises(ConfigError, match="`table` must have results"):
        Results(table.iloc[:0], records)


def test_common_data_sets_leave_sparse_models_out() -> None:
    means = {"full": [0.1, 0.2, 0.3, 0.4], "most": [0.1, 0.2, 0.3, np.nan], "few": [0.1] + [np.nan] * 3}
    block = common(pd.DataFrame(means | {"none": np.nan}, index=list("abcd")).T)
    assert (list(block), list(block.index)) == (["a", "b", "c"], ["full", "most"])
    assert common(pd.DataFrame({"a": [np.nan]})).empty


@pytest.mark.parametrize("name", ["data", "seed"])
def test_models_fitted_to_other_data_are_noted_and_not_compared(name: str) -> None:
    models = (("cox", None), ("rsf", None), ("sst_llog", 2))
    table = pd.concat([rows("aids", *model, {"c_harrell": [[0.7], [0.6]]}) for model in models])
    records = [facts("aids", *model) | {name: 1 if model[0] == "cox" else 2} for model in models]
    results = Results(table, records)
    (note,) = results.notes
    assert note.startswith("aids: cox had other rows")
    section = fold_section(results)
    assert section is not None
    assert [inner.title for inner in section.blocks[1:]] == ["Concordance (Harrell, Antolini) against RSF"]
    assert not Results(table, [record | {name: 2} for record in records]).notes
    assert fold_section(study({("aids", "sst_llog", 2): 0.7, ("aids", "ctree", 2): 0.6})) is None


# ---------------------------------------------------------------------- tests


def test_variance_is_corrected_for_shared_training_rows() -> None:
    one, two = pd.Series([0.70, 0.74, 0.69, 0.75, 0.71]), pd.Series([0.68, 0.70, 0.70, 0.71, 0.70])
    test, difference = compare_folds(one, two), one - two
    assert test is not None
    t = difference.mean() / np.sqrt(difference.var(ddof=1) * (1 / 5 + 1 / 4))
    assert test.difference == pytest.approx(0.02)
    assert test.p_value == pytest.approx(2 * stats.t.sf(t, 4))
    undefined, infinite = (pd.Series([0.7, value, 0.6, 0.7, 0.7]) for value in (np.nan, -np.inf))
    for other in (two[:4], undefined, infinite):
        assert compare_folds(one, other) is None


def test_significant_differences_of_folds_are_counted() -> None:
    tables = []
    for dataset, gain in (("aids", 0.05), ("gbsg2", 0.0), ("veterans", 0.05)):
        other = gain + 1e-4  # in the second fold: equal differences have no variance to test with
        soft = [[0.70 + gain - 0.02, 0.70 + gain + 0.02], [0.72 + other - 0.02, 0.72 + other + 0.02]]
        tables += [
            rows(dataset, "sst_llog", 2, {"c_harrell": soft, "ibs_graf": soft}),
            rows(dataset, "cox", None, {"c_harrell": [[0.70], [0.72]], "ibs_graf": [[0.70], [0.72]]}),
        ]
    section = fold_section(results_of(pd.concat(tables)))
    assert section is not None
    for inner, counts in zip(section.blocks[1:], ("2 / 0", "0 / 2"), strict=True):
        table = inner.blocks[0]
        # Folds that all but agree leave no doubt.
        assert table.loc["Llog D2"].iloc[0] == counts
        cells = [(cell.text, cell.best) for cell in table.loc["Llog D2"].iloc[1:]]
        assert cells == [("+.050", True), (".000", False), ("+.050", True)]


# ---------------------------------------------------------------------- tables

MEANS = {
    ("aids", "cox", None): 0.7004,
    ("aids", "rsf", None): 0.6996,
    ("aids", "deepsurv", None): 0.65,
    ("gbsg2", "cox", None): 0.6,
    ("gbsg2", "rsf", None): 0.8,
}


def _bold(table: pd.DataFrame) -> dict[str, list[str]]:
    names = table.columns.get_level_values(-1)
    return {
        name: [label for label, cell in zip(table.index, column, strict=True) if cell.best]
        for name, column in zip(names, table.to_numpy().T, strict=True)
    }


def test_the_best_of_a_column_is_bold_and_averages_are_over_common_data_sets() -> None:
    table = score_table(study(MEANS), "c_harrell")
    assert _bold(table) == {"aids": ["Cox", "RSF"], "gbsg2": ["RSF"], "average (1)": ["Cox", "RSF"]}
    assert [cell.text for cell in table.loc["DeepSurv"]] == [".650", "\N{EN DASH}", ".650"]
    lower = _bold(score_table(study(MEANS, "ibs_graf"), "ibs_graf"))
    assert (lower["aids"], lower["gbsg2"]) == (["DeepSurv"], ["Cox"])
    classical = {cell: value for cell, value in MEANS.items() if cell[1] != "deepsurv"}
    complete = score_table(study(classical), "c_harrell")
    assert [cell.text for cell in complete.iloc[:, -1]] == [".650", ".750"]
    values = pd.DataFrame([[0.5, 0.6], [0.4, np.nan]])
    assert not best_of(values, None).to_numpy().any()
    assert best_of(values, True).to_numpy().tolist() == [[True, False], [False, False]]


def test_report_names_versions_reasons_and_times() -> None:
    table = pd.concat([rows(name, "cox", None, {"c_harrell": [[0.6], [0.7]]}) for name in ("aids", "gbsg2")])
    undefined = rows("aids", "cox", None, {"c_uno": [[np.nan], [np.nan], [np.nan], [0.7]]})
    infinite = rows("aids", "cox", None, {"log_likelihood": [[-10.0], [-np.inf]]})
    first = {"versions": {"torch": "2.8"}, "finished": "2026-01-01T00:00:00Z"}
    records = [
        facts("aids", "cox", None, seconds={"fit": 3.0, "score": 1.0}, **first),
        facts("gbsg2", "cox", None, seconds={"fit": 5.0, "score": 2.0}, versions={"torch": "2.9"}),
    ]
    text = to_markdown(build_report(Results(pd.concat([table, undefined, infinite]), records)))
    for said in (
        "| 2.8, 2.9 |",
        "2026-01-01T00:00 to 2026-01-02T03:04",
        "| Cox | 4 | 8.00 | 2.00 | 3.00 |",
        "\N{MINUS SIGN}∞",
    ):
        assert said in text, said


def test_averages_over_all_starts_and_over_the_chosen_ones() -> None:
    results = results_of(rows("aids", "sst_llog", 2, {"c_harrell": [[0.6, 0.7], [0.7, 0.8]]}, chosen=1))
    for chosen, mean in ((False, ".700"), (True, ".750")):
        lines = as_text(average_table(results, chosen=chosen)).splitlines()
        assert lines[1].split() == ["Llog", "D2", mean]
    assert "Averages over the chosen start of each fold" in to_markdown(build_report(results))


# ---------------------------------------------------------------------- the paper


def test_published_tables_are_complete() -> None:
    table = published_tables()
    assert not table.duplicated(["split", "metric", "model", "depth", "dataset"]).any()
    assert table["mean"].between(0, 1).all()
    assert table["dataset"].nunique() == 15
    llog = table[(table["metric"] == "c_harrell") & (table["split"] == "test") & (table["depth"] == 2)]
    llog = llog[llog["model"] == "sst_llog"].set_index("dataset")["mean"]
    assert (llog["aids"], len(llog)) == (0.741, 15)


def test_ours_is_joined_to_theirs_by_data_set_model_and_depth() -> None:
    means = {("aids", "sst_llog", 2): 0.751, ("colon", "sst_llog", 2): 0.7, ("aids", "sst_llog", 3): 0.1}
    results = study(means | {("aids", "sst_llog_gated", 2): 0.751, ("aids", "cox", None): 0.7})
    table = against_paper(results, "c_harrell").set_index("key")
    assert set(table.index) == {"sst_llog_d2", "sst_llog_gated_d2"}
    assert (table["dataset"] == "aids").all()  # the paper has no colon
    for name in table.index:
        np.testing.assert_allclose(table.loc[name].iloc[1:].astype(float), [0.751, 0.741, 0.010])
    (average, *_) = (section for section in paper_section(results).blocks if isinstance(section, Section))
    cells = average.blocks[0].loc["Llog D2"].tolist()
    assert cells == [pytest.approx(0.751), pytest.approx(0.741), pytest.approx(0.010), "1"]
    assert paper_section(study({("colon", "cox", None): 0.7})) is None
    means = {("aids2", "sst_po", 2): 0.14, ("aids2", "sst_po_curved", 2): 0.14, ("aids2", "sst_llog", 2): 0.5}
    brier = against_paper(study(means, "ibs_graf"), "ibs_graf").set_index("key")["difference"]
    assert brier.notna().to_dict() == {"sst_po_d2": False, "sst_po_curved_d2": False, "sst_llog_d2": True}


# ---------------------------------------------------------------------- the whole, and the command


def test_page_and_markdown_are_complete(tmp_path: Path) -> None:
    table, records = whole_study()
    write_document(build_report(Results(table, records)), tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"<script [^t]|<link|src=\"(?!data:)|url\((?!#)|@import", page)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    titles = ["What was run", "Averages", "Compared with the paper"]
    titles += ["Soft trees against Cox and the random survival forest", "Scores", "Time"]
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE) == titles
    tables = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    assert len(tables) > 12
    for each in tables:  # rectangular
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in each.splitlines()}) == 1
    assert "Cox has no results on whas500." in text
    assert "8 of 9 runs" in text
    again = to_markdown(build_report(Results(table.sample(frac=1, random_state=3), records[::-1])))
    assert again == text  # in any order


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, key = tmp_path_factory.mktemp("run"), TaskKey("mine", "my_model", None, "0123456789ab")
    table = rows("mine", "my_model", None, {"c_harrell": [[0.6], [0.7]]})
    about = ["dataset", "model", "depth", "config"]
    ResultStore(path).write(key, table.drop(columns=about), facts("mine", "my_model", None))
    return path


def test_report_of_a_single_model_prints_the_averages(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(run)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["model", "C_H", "↑", "(1)"]
    assert lines[1].split() == ["my_model", ".650"]
    assert str(run / "report" / "report.html") in lines[-1]
    assert "paper" not in (run / "report" / "report.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["RUN", "--out", "/dev/null/x"], "cannot be written"),
        (["RUN", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["/no/run"], "/no/run: there is no such folder"),
    ],
)
def test_refusals_are_one_line(
    run: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([str(run) if word == "RUN" else word for word in arguments])
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert error.startswith("sstorch-report: error: ")
    assert words in error
    assert error.count("\n") == 1


def test_a_reader_who_stops_early_is_no_refusal(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    closed = {"write.side_effect": BrokenPipeError, "fileno.return_value": 1}
    redirect = Mock()
    monkeypatch.setattr(sys, "stdout", Mock(spec=io.StringIO, **closed))
    monkeypatch.setattr(os, "dup2", redirect)
    with pytest.raises(SystemExit) as stopped:
        main([str(run), "--out", str(tmp_path)])
    assert stopped.value.code == 141
    assert redirect.call_args.args[1] == 1
    assert capsys.readouterr().err == ""
