"""The commit of the code of a training job, if it is in a git work tree."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

COMMIT_TAG, REPOSITORY_TAG = "trainyard:commit", "trainyard:repository"

_TIMEOUT_S = 2.0
_MAX_TAG = 256
# What the value of a tag may contain.
_TAG_VALUE = re.compile(r"[\w .:/=+\-@]*")


def git_tags(folder: Path) -> Mapping[str, str]:
    """Return the tags that name the commit of a folder and its repository; none outside of a work tree.

    The commit of a work tree with changes ends with `-dirty`.
    """
    if not _is_in_work_tree(folder):
        return {}
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return {}
    # Untracked files are left out, because listing them can take long.
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    tags = {COMMIT_TAG: f"{commit}-dirty" if changes else commit}
    repository = _without_password(_git(folder, "remote", "get-url", "origin"))
    is_allowed = repository and len(repository) <= _MAX_TAG and _TAG_VALUE.fullmatch(repository)
    return tags | ({REPOSITORY_TAG: repository} if is_allowed else {})


def _is_in_work_tree(folder: Path) -> bool:
    """Whether a folder or one above it has a repository, so that no process is started where there is none."""
    whole = folder.absolute()
    return any((each / ".git").exists() for each in (whole, *whole.parents))


def _git(folder: Path, *words: str) -> str:
    """Return what a command of git prints; nothing if it fails, or if there is no git."""
    command = ("git", "-c", "core.fsmonitor=false", "-C", str(folder), *words)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
