"""Runs the cells of notebooks without Jupyter."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# What IPython's display functions send to the front end, for tests without Jupyter, which is a large package. Its
# protocol: an output has an id, and a later message with the same id replaces it, whichever cell or thread sends it.
_IPYTHON = """
from types import SimpleNamespace
def get_ipython():
    return SimpleNamespace(kernel=object())
"""
_IPYTHON_DISPLAY = """
import json
from pathlib import Path
_file = (Path(__file__).parent.parent / "messages.jsonl").open("a", buffering=1)
def display(data, *, raw, display_id):
    _file.write(json.dumps({"type": "display_data", "id": display_id, "data": data}) + "\\n")
def update_display(data, *, raw, display_id):
    _file.write(json.dumps({"type": "update_display_data", "id": display_id, "data": data}) + "\\n")
"""


@dataclass
class Output:
    """An output of a cell: everything that it has shown, oldest first."""

    html: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)


def code_of(notebook: dict[str, Any]) -> list[str]:
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_live_cells(cells: list[str], folder: Path, *, environment: Mapping[str, str]) -> list[Output]:
    """Run cells as a notebook with a kernel does, until nothing is followed any more, and return the live outputs."""
    package = folder / "IPython"
    package.mkdir()
    (package / "__init__.py").write_text(_IPYTHON)
    (package / "display.py").write_text(_IPYTHON_DISPLAY)
    wait = (
        "import threading\n"
        "for thread in threading.enumerate():\n"
        "    if thread.name == 'trainyard-notebook':\n"
        "        thread.join(60)\n"
        "        assert not thread.is_alive()"
    )
    run_cells(["import IPython", *cells, wait], folder, environment=environment)
    outputs: dict[str, Output] = {}
    for line in (folder / "messages.jsonl").read_text().splitlines():
        message = json.loads(line)
        assert (message["id"] in outputs) == (message["type"] == "update_display_data")
        output = outputs.setdefault(message["id"], Output())
        output.html.append(message["data"]["text/html"])
        output.text.append(message["data"]["text/plain"])
    return list(outputs.values())


def run_cells(cells: list[str], folder: Path, *, environment: Mapping[str, str] | None = None) -> str:
    """Run cells as a notebook does, in a process of its own with this home, and return what they show."""
    show = "\n".join(f"_run({cell!r})" for cell in cells)
    program = f"""
import ast

_names = {{"__name__": "__main__"}}


def _run(cell):
    tree = ast.parse(cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), _names)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), _names)
        if hasattr(value, "_ipython_display_"):
            try:
                return value._ipython_display_()
            except NotImplementedError:
                pass  # as IPython does, it is shown as any other
        if value is not None:
            print(repr(value))
            if hasattr(value, "_repr_html_"):
                print(value._repr_html_())


{show}
"""
    script = folder / "cells.py"
    script.write_text(program)
    run = subprocess.run(
        [sys.executable, str(script)],
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **(environment or {})},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout
