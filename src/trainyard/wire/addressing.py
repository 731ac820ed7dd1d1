"""The address of a request: the bucket that its host names, and strict decoding of its path and query."""

import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from trainyard.wire.fault import Fault

_PORT_SUFFIX = re.compile(r":[0-9]*$")


class Hosts:
    """The host names of the yard. A request to `<bucket>.<name>` is for that bucket."""

    def __init__(self, served_names: Sequence[str]) -> None:
        self._names = frozenset(_strip_port(name) for name in (*served_names, "localhost"))
        # Clients choose the hosts, so the cache is bounded.
        self.bucket = lru_cache(maxsize=512)(self._bucket)

    def _bucket(self, host: str) -> str | None:
        """Return the bucket that the host names, or None if the path names it."""
        name = _strip_port(host)
        if name in self._names:
            return None
        suffixes = [suffix for suffix in self._names if name.endswith(f".{suffix}")]
        if suffixes:
            return name[: -len(max(suffixes, key=len)) - 1] or None
        return _bucket_of_aws_host(name)


def _strip_port(host: str) -> str:
    return _PORT_SUFFIX.sub("", host).rstrip(".").lower()


def _bucket_of_aws_host(name: str) -> str | None:
    """Return the bucket before `s3.amazonaws.com`, `s3.us-west-2.…`, `s3-us-west-2.…`, `s3.dualstack.…` and so on."""
    stem = name.removesuffix(".cn")
    if not stem.endswith(".amazonaws.com"):
        return None
    labels = stem.split(".")
    starts = [place for place, label in enumerate(labels) if label == "s3" or label.startswith("s3-")]
    return ".".join(labels[: starts[-1]]) or None if starts else None


def decode_path(text: str) -> str:
    """Decode a path or part of one, in which a plus sign stands for itself."""
    if "%" not in text and text.isascii():
        return text
    return _decode(text)


def decode_parameters(query: str) -> list[tuple[str, str]]:
    """Decode the names and values of a query string or a form, in order; a bare name has the value ""."""
    pairs = []
    for piece in query.split("&"):
        if piece:
            name, _, value = piece.partition("=")
            pairs.append((decode_parameter(name), decode_parameter(value)))
    return pairs


def decode_parameter(text: str) -> str:
    """Decode a name or a value of a query string, in which a plus sign is a space."""
    return decode_path(text.replace("+", " ") if "+" in text else text)


def _decode(text: str) -> str:
    try:
        # A non-ASCII character is a byte that the client did not encode.
        return unquote_to_bytes(text.encode("latin-1")).decode("utf-8")
    except UnicodeError as error:
        raise Fault("InvalidURI", "Couldn't parse the specified URI: it is not UTF-8.") from error
