"""Work on a home folder that the command line hands to a process of the server's.

That process answers with one JSON object on stdout: its result, or what went wrong and of which kind.
"""

import json
import subprocess
import sys
from typing import Any

from trainyard.cli.failure import ExitCode, Failure
from trainyard.foundation.home import Home

_CODES = {"NotFound": ExitCode.NOT_FOUND, "NotPermitted": ExitCode.AUTH, "LimitExceeded": ExitCode.QUOTA}


def maintain(command: str, home: Home, *arguments: str) -> dict[str, Any]:
    """The result of one command of trainyard.server.maintenance; its failures become ours."""
    program = [sys.executable, "-m", "trainyard.server.maintenance", command, "--home", str(home.root), *arguments]
    ended = subprocess.run(program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    try:
        answer: dict[str, Any] = json.loads(ended.stdout)
    except ValueError as error:
        raise Failure(
            f"`{command}` broke off.", why=f"Its process ended with {ended.returncode} and no result."
        ) from error
    if "error" in answer:
        raise Failure(answer["error"], code=_CODES.get(answer["kind"], ExitCode.FAILED))
    return answer
