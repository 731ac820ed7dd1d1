"""Writes the report on a job: the page, the notebook, and a file for each rule."""

from collections.abc import Mapping

from trainyard.insight.profiling.report.contract import NOTEBOOK, PAGE, ReportSource
from trainyard.insight.profiling.report.notebook import write_notebook
from trainyard.insight.profiling.report.page import write_page
from trainyard.insight.profiling.report.rule_files import write_rule_files
from trainyard.insight.profiling.report.summary import summarize


def write_report(source: ReportSource) -> Mapping[str, bytes]:
    """Return the files by their names relative to the folder of the report."""
    figures = summarize(source)
    return {
        # Names of programs may have halves of characters, which UTF-8 does not.
        PAGE: write_page(source, figures).encode("utf-8", "replace"),
        NOTEBOOK: write_notebook(figures).encode("utf-8", "replace"),
        **write_rule_files(source.rules),
    }
