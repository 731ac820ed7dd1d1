"""The program that keeps and runs container images: podman or docker, by what both of them understand."""

import shutil
import subprocess
import sys

from trainyard.foundation.errors import InvalidRequest, Unavailable

TOOLS = ("podman", "docker")


def find_tool(named: str = "") -> str:
    """The path of the named tool; of podman, or else of docker, when none is. InvalidRequest when it is not there."""
    for name in (named,) if named else TOOLS:
        found = shutil.which(name)
        if found is not None:
            return found
    if named:
        raise InvalidRequest(f"There is no program {named} here; name podman or docker, or a path of one of them.")
    raise InvalidRequest("Neither podman nor docker is installed here; container images need one of them.")


def show(tool: str, *arguments: str) -> int:
    """Run the tool for a person, who reads on stderr all that it prints; its exit status."""
    try:
        return subprocess.run([tool, *arguments], stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False).returncode
    except OSError as error:
        raise Unavailable(f"{tool} cannot be run: {error}.") from error
