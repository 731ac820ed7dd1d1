"""The two ways in which a launcher starts.

`main` runs in its own Python, `python -I -S -c BOOT PACKAGE SPEC PROGRAM…`, and executes its ranks. `become_rank` runs
in a process that was forked from a warm worker, and forks its ranks with everything that is imported.
"""

import os
import sys
from typing import TYPE_CHECKING, NoReturn

from trainyard.instance.launch.launcher import RankEntered, RankLauncher, end_process, execute
from trainyard.instance.launch.spec import LauncherSpec, decode_spec

if TYPE_CHECKING:
    from trainyard.instance.sandbox.spec import SandboxSpec


def main() -> None:
    _, package, text, *program = sys.argv
    launch(decode_spec(text), package, program)


def launch(spec: LauncherSpec, package: str, program: list[str]) -> NoReturn:
    """Run the ranks of this host, and end this process as they ended."""
    if spec.mpi is not None:
        # Imported here, because most launchers do not need it.
        from trainyard.instance.launch.mpi.host import run_with_mpirun

        code = run_with_mpirun(spec, spec.mpi, package=package, program=program)
        if code is not None:
            end_process(code)
    try:
        code = RankLauncher(spec, dict(os.environ)).run()
    except RankEntered as rank:
        environment = rank.environment
    else:
        end_process(code)
    execute(program, environment)


def become_rank(program: "SandboxSpec", failure_fd: int) -> None:
    """Turn this process into the launcher; return in each rank, with `program` updated for that rank.

    A rank writes to `failure_fd` if it cannot become the program, as the program itself would.
    """
    spec = decode_spec(program.launcher[-1])
    try:
        code = RankLauncher(spec, program.environment, kept_fd=failure_fd).run()
    except RankEntered as rank:
        program.environment = rank.environment
        program.threads = spec.threads
    else:
        end_process(code)
