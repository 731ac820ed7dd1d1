"""Policy documents: JSON that is checked, kept as it was written, and given back percent-encoded."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from trainyard.foundation.errors import LimitExceeded
from trainyard.server.services.iam.faults import malformed_policy
from trainyard.server.services.iam.grammar import SYNTAX, require_permissions, require_trust

Quota = tuple[str, int]

TRUST_QUOTA: Quota = ("ACLSizePerRole", 2048)
POLICY_QUOTA: Quota = ("PolicySize", 6144)
INLINE_QUOTA: Quota = ("RolePolicySize", 10240)


def checked_policy(text: str, quota: Quota) -> str:
    """The document itself, if it says what is permitted; MalformedPolicyDocument says why it does not."""
    return _checked(text, quota, require=require_permissions, not_json=SYNTAX)


def checked_trust(text: str) -> str:
    """The document itself, if it says who may assume a role; MalformedPolicyDocument says why it does not."""
    return _checked(text, TRUST_QUOTA, require=require_trust, not_json="This policy contains invalid Json")


def check_size(texts: list[str], quota: Quota) -> None:
    """LimitExceeded when the documents together are longer than IAM allows; blanks do not count."""
    name, limit = quota
    if sum(len("".join(text.split())) for text in texts) > limit:
        raise LimitExceeded(f"Cannot exceed quota for {name}: {limit}")


def encoded(text: str) -> str:
    return quote(text, safe="")


def _checked(text: str, quota: Quota, *, require: Callable[[Any], None], not_json: str) -> str:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise malformed_policy(not_json) from None
    require(document)
    check_size([text], quota)
    return text
