"""Virtual-host addressing: the bucket that a Host header names."""

import re
from collections.abc import Sequence
from functools import lru_cache

_PORT = re.compile(r":[0-9]*$")


class Hosts:
    """The names that the yard answers to. A request to `<bucket>.<name>` is for that bucket."""

    def __init__(self, served: Sequence[str]) -> None:
        self._names = frozenset(_bare(name) for name in (*served, "localhost"))
        # Hosts come from clients, so what is remembered of them has a bound.
        self.bucket = lru_cache(maxsize=512)(self._bucket)

    def _bucket(self, host: str) -> str | None:
        """The bucket that the host names, or None where the path does."""
        name = _bare(host)
        if name in self._names:
            return None
        suffixes = [served for served in self._names if name.endswith(f".{served}")]
        if suffixes:
            return name[: -len(max(suffixes, key=len)) - 1] or None
        return _bucket_of_amazon(name)


def _bare(host: str) -> str:
    return _PORT.sub("", host).rstrip(".").lower()


def _bucket_of_amazon(name: str) -> str | None:
    """The bucket before `s3.amazonaws.com`, `s3.us-west-2.…`, `s3-us-west-2.…`, `s3.dualstack.…` and their like."""
    stem = name.removesuffix(".cn")
    if not stem.endswith(".amazonaws.com"):
        return None
    labels = stem.split(".")
    starts = [place for place, label in enumerate(labels) if label == "s3" or label.startswith("s3-")]
    return ".".join(labels[: starts[-1]]) or None if starts else None
