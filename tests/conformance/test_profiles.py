"""What AWS's own smdebug.profiler reads and computes of a profile, ours does as well."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.conftest import FLOWS
from tests.conformance.environments import interpreter
from tests.unit._sdk.profiling.recorded_profile import write_profile, write_python_profiles


@pytest.mark.slow
def test_events_tables_and_statistics_are_the_same(tmp_path: Path) -> None:
    write_python_profiles(write_profile(tmp_path))
    theirs, ours = (told(python, tmp_path) for python in (interpreter("smdebug"), Path(sys.executable)))
    assert theirs.keys() == ours.keys()
    for part, values in theirs.items():
        assert ours[part] == values, part


def told(python: Path, folder: Path) -> dict[str, Any]:
    run = subprocess.run(
        [python, FLOWS / "profiles_with_smdebug.py", folder],
        env={"PATH": os.environ["PATH"], "SMDEBUG_LOG_LEVEL": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-6000:]
    # AWS's library prints what it does.
    answer: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return answer
