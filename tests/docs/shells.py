"""The environment of a shell that acts as a new user: its own home folder, yard and ports."""

import os
import socket
import sys
from pathlib import Path


def shell_environment(folder: Path) -> dict[str, str]:
    """Return variables without the AWS settings of this machine, for a user whose home is the folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TRAINYARD_"))}
    return kept | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "TRAINYARD_SERVER_PORT": str(_free_port()),
    }


def _free_port() -> int:
    """Return a free port whose successor is free too, for https."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
