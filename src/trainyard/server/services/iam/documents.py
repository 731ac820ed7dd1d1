"""Policy documents: JSON that is checked, kept as it was written, and given back percent-encoded."""

import json
from typing import Any
from urllib.parse import quote

from trainyard.foundation.errors import LimitExceeded
from trainyard.wire.fault import Fault

TRUST_QUOTA = ("ACLSizePerRole", 2048)
POLICY_QUOTA = ("PolicySize", 6144)
INLINE_QUOTA = ("RolePolicySize", 10240)

_VERSIONS = ("2012-10-17", "2008-10-17")


def checked_document(text: str, quota: tuple[str, int]) -> str:
    """The document itself, if it is a policy; MalformedPolicyDocument says why it is none."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise _malformed("This policy contains invalid Json") from None
    if not isinstance(document, dict):
        raise _malformed("A policy is a JSON object.")
    if document.get("Version", _VERSIONS[0]) not in _VERSIONS:
        raise _malformed(f"The policy's Version must be {' or '.join(_VERSIONS)}.")
    statements = document.get("Statement")
    for statement in statements if isinstance(statements, list) and statements else [statements]:
        _check_statement(statement)
    check_size([text], quota)
    return text


def check_size(texts: list[str], quota: tuple[str, int]) -> None:
    """LimitExceeded when the documents together are longer than IAM allows; blanks do not count."""
    name, limit = quota
    if sum(len("".join(text.split())) for text in texts) > limit:
        raise LimitExceeded(f"Cannot exceed quota for {name}: {limit}")


def encoded(text: str) -> str:
    return quote(text, safe="")


def _check_statement(statement: Any) -> None:
    if not isinstance(statement, dict):
        raise _malformed("A policy needs a Statement: an object, or a list of objects.")
    if statement.get("Effect") not in ("Allow", "Deny"):
        raise _malformed("Each Statement needs an Effect, which is Allow or Deny.")
    if "Action" not in statement and "NotAction" not in statement:
        raise _malformed("Each Statement needs an Action or a NotAction.")


def _malformed(message: str) -> Fault:
    return Fault("MalformedPolicyDocument", message)
