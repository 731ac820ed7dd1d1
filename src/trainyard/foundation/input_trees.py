"""Where the local folders that clients upload as job inputs are stored in a bucket.

    trainyard-inputs/trees/<digest>-<upload>/…      the files of one upload, under their paths in the folder
    trainyard-inputs/manifests/<digest>-<upload>    the list of these files
    trainyard-inputs/commits/<digest>-<upload>      written last, when the upload is complete; and again at each use
    trainyard-inputs/holds/<digest>-<upload>/…      clients that upload it, or are about to use it in a job

The digest covers every path and content, so a committed tree never changes. Each upload has a prefix of its own, so
removing an unused one cannot affect another with the same content.
"""

import re
import secrets
from datetime import timedelta

ROOT = "trainyard-inputs/"
TREES, MANIFESTS, COMMITS, HOLDS = f"{ROOT}trees/", f"{ROOT}manifests/", f"{ROOT}commits/", f"{ROOT}holds/"

# After the last sign of a client.
HELD_FOR = timedelta(hours=1)

_TREE = re.compile(r"(?P<digest>[0-9a-f]{32})-[0-9a-f]{16}")
_TREE_IN_TEXT = re.compile(rf"{TREES}({_TREE.pattern.replace('?P<digest>', '?:')})/")


def new_tree(digest: str) -> str:
    """Return a name for a new upload of the content with this digest."""
    return f"{digest}-{secrets.token_hex(8)}"


def digest_of_tree(tree: str) -> str | None:
    """Return the digest in the name of an upload; None if the name is not ours."""
    named = _TREE.fullmatch(tree)
    return named["digest"] if named else None


def trees_named_in(text: str) -> set[str]:
    """Return the uploads whose files a text refers to."""
    return set(_TREE_IN_TEXT.findall(text))


def files_prefix(tree: str) -> str:
    return f"{TREES}{tree}/"


def holds_prefix(tree: str) -> str:
    return f"{HOLDS}{tree}/"
