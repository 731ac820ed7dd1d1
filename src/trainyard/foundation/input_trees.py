"""Where the local folders that clients upload as inputs of jobs lie in a bucket.

    trainyard-inputs/trees/<digest>-<upload>/…      the files of one upload, under their paths in the folder
    trainyard-inputs/manifests/<digest>-<upload>    what these files are
    trainyard-inputs/commits/<digest>-<upload>      written last: it is complete; and again at each use
    trainyard-inputs/holds/<digest>-<upload>/…      who uploads it, or is about to name it in a job

The digest is that of every path and content, so a tree never changes once it is committed. Each upload has a prefix of
its own, so what removes one that nobody needs cannot touch another of the same content.
"""

import re
import secrets
from datetime import timedelta

ROOT = "trainyard-inputs/"
TREES, MANIFESTS, COMMITS, HOLDS = f"{ROOT}trees/", f"{ROOT}manifests/", f"{ROOT}commits/", f"{ROOT}holds/"

HELD_FOR = timedelta(hours=1)  # after a client was last heard of

_TREE = re.compile(r"(?P<digest>[0-9a-f]{32})-[0-9a-f]{16}")
_NAMED = re.compile(rf"{TREES}({_TREE.pattern.replace('?P<digest>', '?:')})/")


def new_tree(digest: str) -> str:
    """A name for another upload of the content with this digest."""
    return f"{digest}-{secrets.token_hex(8)}"


def digest_of_tree(tree: str) -> str | None:
    """The digest in the name of an upload; None where the name is none of ours."""
    named = _TREE.fullmatch(tree)
    return named["digest"] if named else None


def trees_named_in(text: str) -> set[str]:
    """The uploads whose files a text names by their locations."""
    return set(_NAMED.findall(text))


def files_prefix(tree: str) -> str:
    return f"{TREES}{tree}/"


def holds_prefix(tree: str) -> str:
    return f"{HOLDS}{tree}/"
