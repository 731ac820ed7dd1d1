"""Runs a program in a process of its own, with the profiler attached to it as in a job."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.formats.profiles.contract import StepPhase
from trainyard.formats.profiles.step_times import TRAIN, StepRow, decode_rows
from trainyard.link.event_protocol import PROFILER_CONFIG, STEP_TIMES

_PRELUDE = """\
import os, runpy, sys
from pathlib import Path
from trainyard.instance.hook.profiling.attachment import attach_profiler

def note(text):
    with open(sys.argv[1] + "/notes", "a") as file:
        file.write(text + "\\n")

import {framework}
attach_profiler("{framework}", Path(sys.argv[1]), dict(os.environ), note=note)
runpy.run_path(sys.argv[2], run_name="__main__")
"""


@dataclass(frozen=True)
class ProgramRun:
    """What a program left: its exit code, output and notes, and the steps and facts of each rank."""

    code: int
    output: str
    notes: list[str]
    ranks: Mapping[str, list[StepRow]]
    all_facts: Mapping[str, Mapping[str, Any]]

    @property
    def steps(self) -> list[StepRow]:
        """The training steps of the only rank."""
        return [step for step in self.ranks.get("worker_0", []) if step.mode == TRAIN]

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.all_facts["worker_0"]


def run_program(
    folder: Path,
    source: str,
    *,
    environment: Mapping[str, str] | None = None,
    framework: str = "torch",
    timeout_s: float = 60,
) -> ProgramRun:
    """Run the program until it ends, and return what it left in the folder."""
    config = folder / PROFILER_CONFIG
    config.parent.mkdir(parents=True)
    config.write_text("{}")
    prelude, script = folder / "prelude.py", folder / "train.py"
    prelude.write_text(_PRELUDE.format(framework=framework))
    script.write_text(textwrap.dedent(source))
    # Other tests use the machine as well; more threads than cores would take most of the time.
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    run = subprocess.run(
        [sys.executable, str(prelude), str(folder), str(script)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    notes = folder / "notes"
    written = sorted((folder / STEP_TIMES).glob("*.steps"))
    return ProgramRun(
        code=run.returncode,
        output=run.stdout + run.stderr,
        notes=notes.read_text().splitlines() if notes.exists() else [],
        ranks={file.stem: list(decode_rows(file.read_bytes())) for file in written},
        all_facts={file.stem: json.loads(file.with_suffix(".json").read_bytes()) for file in written},
    )


def total_ms(steps: list[StepRow], phase: StepPhase) -> float:
    return sum(step.phases_ns[phase] for step in steps) / 1e6
