"""The report of a study: tables, tests and figures, as Markdown and as one HTML page."""

from sstorch.bench.report.report import build_report, write_report
from sstorch.bench.report.results import Results

__all__ = ["Results", "build_report", "write_report"]
