"""The report of a study: tables, tests and figures, as Markdown and as one HTML page."""

from sstorch.bench.report.comparisons import (
    FriedmanTest,
    friedman_test,
    holm,
    nemenyi_critical_difference,
    ranks,
    wilcoxon_pairs,
)
from sstorch.bench.report.report import ReportFiles, build_report, write_report
from sstorch.bench.report.results import Results, published_means, published_tables

__all__ = [
    "FriedmanTest",
    "ReportFiles",
    "Results",
    "build_report",
    "friedman_test",
    "holm",
    "nemenyi_critical_difference",
    "published_means",
    "published_tables",
    "ranks",
    "wilcoxon_pairs",
    "write_report",
]
