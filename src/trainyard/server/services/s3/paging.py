"""What all listings share: limits, tokens, and names that XML cannot carry."""

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote

from trainyard.server.services.contract import Shape
from trainyard.server.services.s3.faults import invalid_argument

MAX_PAGE = 1000

Encoding = Callable[[str], str]


def page_limit(shape: Shape, member: str, *, name: str) -> int:
    """How many entries the client wants, at most a full page."""
    limit = shape.get(member)
    if limit is None:
        return MAX_PAGE
    if limit < 0:
        raise invalid_argument(f"{name} must be an integer between 0 and 2147483647.", name=name, value=limit)
    return min(int(limit), MAX_PAGE)


def encoding_of(shape: Shape) -> Encoding:
    """How names are written in the answer: as they are, or percent-encoded with `encoding-type=url`."""
    return _percent if shape.get("EncodingType") == "url" else str


def write_token(text: str) -> str:
    """A continuation token; what is in it is nobody's business but ours."""
    return urlsafe_b64encode(text.encode()).decode()


def read_token(token: str) -> str:
    try:
        return b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except ValueError:
        raise invalid_argument(
            "The continuation token provided is incorrect", name="continuation-token", value=token
        ) from None


def _percent(text: str) -> str:
    # A blank becomes %20, which clients read alike whether or not they take a plus sign for a blank.
    return quote(text, safe="/")
