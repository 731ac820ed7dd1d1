import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks import code_of, run_cells
from tests.profiles import at_us, job
from tests.reported_jobs import slow_loading_source
from trainyard.insight.profiling.report.contract import ReportSource
from trainyard.insight.profiling.report.notebook import write_notebook
from trainyard.insight.profiling.report.summary import summarize
from trainyard.insight.profiling.verdict.contract import ProfileVerdict


def notebook_of(source: ReportSource) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(write_notebook(summarize(source)))
    return found


def test_the_notebook_has_the_structure_of_nbformat_4() -> None:
    notebook = notebook_of(slow_loading_source())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"]["language"] == "python"
    identifiers = [cell["id"] for cell in notebook["cells"]]
    assert len(set(identifiers)) == len(identifiers)
    for cell in notebook["cells"]:
        members = {"id", "cell_type", "metadata", "source"}
        assert set(cell) == members | ({"execution_count", "outputs"} if cell["cell_type"] == "code" else set())
        assert all(isinstance(line, str) for line in cell["source"])


def test_every_code_cell_is_python() -> None:
    for number, code in enumerate(code_of(notebook_of(slow_loading_source()))):
        compile(code, f"cell {number}", "exec")


def test_the_notebook_has_the_sections_of_the_page() -> None:
    words = [
        "".join(cell["source"])
        for cell in notebook_of(slow_loading_source())["cells"]
        if cell["cell_type"] == "markdown"
    ]
    titles = [line.removeprefix("## ") for text in words for line in text.splitlines() if line.startswith("## ")]
    assert titles == [
        "Verdict",
        "Training job summary",
        "The job in the yard",
        "Where the time of steps goes",
        "Step durations",
        "Rules",
        "Data loading",
        "Program",
        "System usage",
        "Traces",
        "What is missing",
    ]


def test_without_a_yard_the_cells_show_the_figures_that_the_notebook_brings(tmp_path: Path) -> None:
    shown = run_cells(code_of(notebook_of(slow_loading_source())), tmp_path)
    assert "The GPUs wait for data in 44 % of each step" in shown
    assert "The job is not reached, so only the figures of the report are shown: this machine knows no yard" in shown
    # A session would have started one.
    assert not (tmp_path / ".trainyard").exists()
    assert "Use 6 data workers instead of 2" in shown
    assert "DataLoader(Flowers)" in shown
    assert "aten::convolution_backward" in shown
    assert "<td>worker_0</td>" in shown


def test_names_that_are_html_or_code_are_only_names(tmp_path: Path) -> None:
    attack = "'''\"\"\"\\\n</script><script>alert(1)</script>{0}\N{SNOWMAN}\ud800"
    verdict = ProfileVerdict("It is so.", notes=(attack,))
    cells = code_of(notebook_of(ReportSource(job(0), verdict, at_us(0))))
    shown = run_cells([*cells, 'print(ascii(verdict["notes"][0]))'], tmp_path)
    assert ascii(attack.replace("\ud800", "?")) in shown
    tables = re.findall(r"<table>.*?</table>", shown, re.DOTALL)
    assert "&lt;script&gt;alert(1)" in tables[-1]
    assert not any("<script>" in table for table in tables)


@pytest.mark.parametrize("source", [ReportSource(job(0), ProfileVerdict("There is nothing to judge."), at_us(0))])
def test_the_notebook_of_an_empty_profile_runs(source: ReportSource, tmp_path: Path) -> None:
    shown = run_cells(code_of(notebook_of(source)), tmp_path)
    assert "There is nothing to judge." in shown
    assert "Nothing was recorded." in shown
