"""Percent-encoding read strictly: what does not decode to UTF-8 is refused, never replaced."""

from urllib.parse import unquote_to_bytes

from trainyard.wire.fault import Fault


def decode_path(text: str) -> str:
    """A path or a piece of one; a plus sign is itself there."""
    if "%" not in text and text.isascii():
        return text
    return _decode(text)


def decode_parameters(query: str) -> list[tuple[str, str]]:
    """The names and values of a query string or a form, in order; a bare name has the value ""."""
    pairs = []
    for piece in query.split("&"):
        if piece:
            name, _, value = piece.partition("=")
            pairs.append((decode_parameter(name), decode_parameter(value)))
    return pairs


def decode_parameter(text: str) -> str:
    """A name or a value of a query string, in which a plus sign is a blank."""
    return decode_path(text.replace("+", " ") if "+" in text else text)


def _decode(text: str) -> str:
    try:
        # A character beyond ASCII is a byte that the client forgot to encode.
        return unquote_to_bytes(text.encode("latin-1")).decode("utf-8")
    except UnicodeError as error:
        raise Fault("InvalidURI", "Couldn't parse the specified URI: it is not UTF-8.") from error
