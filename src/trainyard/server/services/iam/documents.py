"""Policy documents: checked for their outline, stored as written, returned percent-encoded.

Nothing here evaluates a policy. The checks catch what AWS would refuse at a glance: text that is not JSON, a missing or
misspelt member, a policy in the place of a trust policy, and a document that is too long.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from trainyard.foundation.errors import LimitExceeded
from trainyard.server.services.iam.faults import malformed_policy

Quota = tuple[str, int]

TRUST_QUOTA: Quota = ("ACLSizePerRole", 2048)
POLICY_QUOTA: Quota = ("PolicySize", 6144)
INLINE_QUOTA: Quota = ("RolePolicySize", 10240)

_SYNTAX = "Syntax errors in policy."
_VERSIONS = (None, "2012-10-17", "2008-10-17")
_POLICY_MEMBERS = frozenset({"Version", "Id", "Statement"})
_STATEMENT_MEMBERS = frozenset(
    {"Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource", "NotResource", "Condition"}
)

Statement = Mapping[str, Any]


def require_policy(text: str, quota: Quota) -> str:
    """Return a document that says what is permitted; MalformedPolicyDocument if it does not."""
    for statement in _statements(text, not_json=_SYNTAX):
        if _has(statement, "Principal"):
            raise malformed_policy("Policy document should not specify a principal.")
        if not _has(statement, "Resource"):
            raise malformed_policy("Policy statement must contain resources.")
    require_size([text], quota)
    return text


def require_trust(text: str) -> str:
    """Return a document that says who may assume a role; MalformedPolicyDocument if it does not."""
    for statement in _statements(text, not_json="This policy contains invalid Json"):
        if _has(statement, "Resource"):
            raise malformed_policy("Has prohibited field Resource")
        if not _has(statement, "Principal"):
            raise malformed_policy("Missing required field Principal")
    require_size([text], TRUST_QUOTA)
    return text


def require_size(texts: list[str], quota: Quota) -> None:
    """Raise LimitExceeded when the documents together exceed IAM's quota. White space does not count."""
    name, limit = quota
    if sum(len("".join(text.split())) for text in texts) > limit:
        raise LimitExceeded(f"Cannot exceed quota for {name}: {limit}")


def percent_encode(text: str) -> str:
    return quote(text, safe="")


def _statements(text: str, *, not_json: str) -> Sequence[Statement]:
    """Parse the statements of a document. Each has an effect, actions, and only known members."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise malformed_policy(not_json) from None
    if not isinstance(document, dict) or not document.keys() <= _POLICY_MEMBERS:
        raise malformed_policy(_SYNTAX)
    if document.get("Version") not in _VERSIONS:
        raise malformed_policy(_SYNTAX)
    given = document.get("Statement")
    statements: list[Any] = given if isinstance(given, list) else [given]
    for statement in statements:
        if not isinstance(statement, dict) or not statement.keys() <= _STATEMENT_MEMBERS:
            raise malformed_policy(_SYNTAX)
        if statement.get("Effect") not in ("Allow", "Deny"):
            raise malformed_policy(_SYNTAX)
        if not _has(statement, "Action"):
            raise malformed_policy("Policy statement must contain actions.")
    if not statements:
        raise malformed_policy(_SYNTAX)
    return statements


def _has(statement: Statement, member: str) -> bool:
    """Whether a statement names something under a member or its negation."""
    return bool(statement.get(member) or statement.get(f"Not{member}"))
