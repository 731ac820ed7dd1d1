"""The grammar of policies, and what IAM says of a document that breaks it.

A policy is only remembered here, but one that AWS would refuse is refused as well: who writes it hears of the mistake
before it is taken to a cloud.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from trainyard.server.services.iam.faults import malformed_policy

SYNTAX = "Syntax errors in policy."
CURRENT = "2012-10-17"
VERSIONS = (CURRENT, "2008-10-17")

_POLICY = frozenset({"Version", "Id", "Statement"})
_STATEMENT = frozenset(
    {"Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction", "Resource", "NotResource", "Condition"}
)
_EITHER = (("Action", "NotAction"), ("Resource", "NotResource"), ("Principal", "NotPrincipal"))
_PARTITION = re.compile(r"aws(-[a-z]+)*|.*[*?].*")
_VENDOR = re.compile(r"[\w.*?-]+")
_TRUSTED = re.compile(r"\*|sts:(.*\*.*|assumerole\w*|tagsession|setsourceidentity|setcontext)", re.IGNORECASE)
_OPERATOR = re.compile(
    r"((ForAnyValue|ForAllValues):)?((String|Numeric|Date|Arn)(Not)?(Equals|Like|EqualsIgnoreCase)"
    r"|(Numeric|Date)(Less|Greater)Than(Equals)?|Bool|BinaryEquals|(Not)?IpAddress|Null)(IfExists)?",
    re.IGNORECASE,
)

Statement = Mapping[str, Any]


def require_permissions(document: Any) -> None:
    """Refuse what is not a policy that says what is permitted; who is, the policy's owner says."""
    statements = _statements(document)
    if document.get("Version") != CURRENT:
        raise malformed_policy(f"Policy document must be version {CURRENT} or greater.")
    _require_names(statements)
    for statement in statements:
        if "Principal" in statement or "NotPrincipal" in statement:
            raise malformed_policy("Policy document should not specify a principal.")
        _require_resources(_texts(statement, "Resource"))
    for statement in statements:
        _require_actions(_texts(statement, "Action"))
    if not all(_texts(statement, "Resource") for statement in statements):
        raise malformed_policy("Policy statement must contain resources.")


def require_trust(document: Any) -> None:
    """Refuse what is not a policy that says who may assume a role."""
    statements = _statements(document)
    _require_names(statements)
    for statement in statements:
        if "Resource" in statement or "NotResource" in statement:
            raise malformed_policy("Has prohibited field Resource")
        if "Principal" not in statement and "NotPrincipal" not in statement:
            raise malformed_policy("Missing required field Principal")
        actions = _texts(statement, "Action")
        _require_actions(actions)
        if "Action" in statement and not all(_TRUSTED.fullmatch(action) for action in actions):
            raise malformed_policy("AssumeRole policy may only specify STS AssumeRole actions.")


def _statements(document: Any) -> list[Statement]:
    """The statements of a document, each of the right form."""
    if not isinstance(document, dict) or not document.keys() <= _POLICY:
        raise malformed_policy(SYNTAX)
    if document.get("Version", CURRENT) not in VERSIONS or not isinstance(document.get("Id", ""), str):
        raise malformed_policy(SYNTAX)
    given = document.get("Statement")
    statements: list[Any] = given if isinstance(given, list) else [given]
    if not statements or not all(_is_statement(statement) for statement in statements):
        raise malformed_policy(SYNTAX)
    return statements


def _is_statement(statement: Any) -> bool:
    if not isinstance(statement, dict) or not statement.keys() <= _STATEMENT:
        return False
    if any(one in statement and other in statement for one, other in _EITHER):
        return False
    effect, sid = statement.get("Effect"), statement.get("Sid", "")
    if not isinstance(effect, str) or effect.lower() not in ("allow", "deny") or not isinstance(sid, str):
        return False
    lists = [statement[name] for pair in _EITHER[:2] for name in pair if name in statement]
    principals = [statement[name] for name in _EITHER[2] if name in statement]
    return (
        all(_is_text_or_texts(each) for each in lists)
        and all(each == "*" or _is_map_of_texts(each) for each in principals)
        and _is_condition(statement.get("Condition", {}))
    )


def _is_text_or_texts(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value))


def _is_map_of_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text_or_texts, value.values()))


def _is_condition(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(keys, dict)
        and (not keys or (_OPERATOR.fullmatch(operator) and all(map(_is_operand, keys.values()))))
        for operator, keys in value.items()
    )


def _is_operand(value: Any) -> bool:
    return all(isinstance(item, str | int | float) for item in (value if isinstance(value, list) else [value]))


def _require_names(statements: Iterable[Statement]) -> None:
    if any(statement["Effect"] not in ("Allow", "Deny") for statement in statements):
        raise malformed_policy("The policy failed legacy parsing")
    names = [statement["Sid"] for statement in statements if statement.get("Sid")]
    if len(set(names)) < len(names):
        raise malformed_policy("Statement IDs (SID) in a single policy must be unique.")


def _texts(statement: Statement, name: str) -> list[str]:
    """What a statement has under a name, or under its negation."""
    value = statement.get(name, statement.get(f"Not{name}", []))
    return [value] if isinstance(value, str) else value


def _require_actions(actions: list[str]) -> None:
    if not actions:
        raise malformed_policy("Policy statement must contain actions.")
    for action in actions:
        vendor, colon, rest = action.partition(":")
        if action == "*":
            continue
        if not colon:
            raise malformed_policy("Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc.")
        if ":" in rest:
            raise malformed_policy("Actions/Condition can contain only one colon.")
        if not _VENDOR.fullmatch(vendor):
            raise malformed_policy(f"Vendor {vendor} is not valid")


def _require_resources(resources: list[str]) -> None:
    for resource in resources:
        if resource == "*":
            continue
        _, colon, rest = resource.partition(":")
        if not colon:
            raise malformed_policy(f'Resource {resource} must be in ARN format or "*".')
        parts = rest.split(":", 4)
        if not _PARTITION.fullmatch(parts[0]):
            whole = ":".join(["arn", *parts, *["*"] * (5 - len(parts))])
            raise malformed_policy(f'Partition "{parts[0]}" is not valid for resource "{whole}".')
