"""SimulatePrincipalPolicy: what the yard permits a role or user to do.

Policies are stored but not enforced, so the answer does not depend on them: a principal may do everything in its own
account, except what the yard reserves for administrators and for long-term access keys.
"""

import re

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.server import roles
from trainyard.server.records.contract import User
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.iam.shapes import page_of

ALLOWED, DENIED = "allowed", "implicitDeny"

# In lower case, because IAM ignores the case of actions. Credentials of a role are never an administrator's.
_FOR_ADMINISTRATORS = frozenset({"iam:createuser", "iam:deleteuser"})
_FOR_LONG_TERM_KEYS = frozenset(
    {"iam:createaccesskey", "iam:deleteaccesskey", "iam:updateaccesskey", "sts:getsessiontoken"}
)

_ACTION = re.compile(r"[A-Za-z0-9-]+:[A-Za-z0-9]+")
_USER_ARN = re.compile(r"arn:aws:iam::(?P<account>[0-9]{12}):user/(?:.*/)?(?P<name>[^/]+)")
# What a simulation could take in addition to the policies of the principal.
_POLICIES = ("PolicyInputList", "PermissionsBoundaryPolicyInputList", "ResourcePolicy")


def simulate_principal_policy(call: Call, request: Shape) -> Shape:
    """Return what the yard permits a role or user to do. It enforces no policies, so none is evaluated."""
    for member in _POLICIES:
        if request.get(member):
            raise InvalidRequest(f"Trainyard does not evaluate policies; leave {member} out.")
    denied = _denied_actions(call, request["PolicySourceArn"])
    resources = request.get("ResourceArns", ())
    for action in request["ActionNames"]:
        if not _ACTION.fullmatch(action):
            raise InvalidRequest(f"Invalid Action Name: {action}. Name a service and one operation: iam:CreateUser.")
    # The keys keep the order of the request, page by page.
    actions = [(f"{number:09}", action) for number, action in enumerate(request["ActionNames"])]
    return page_of(
        "EvaluationResults",
        actions,
        request,
        key=lambda each: each[0],
        shape=lambda each: _result(each[1], resources, DENIED if each[1].lower() in denied else ALLOWED),
    )


OPERATIONS: Operations = {"SimulatePrincipalPolicy": simulate_principal_policy}


def _denied_actions(call: Call, arn: str) -> frozenset[str]:
    """Return what a principal may not do; NotFound if it does not exist or the caller cannot see it."""
    if named := _USER_ARN.fullmatch(arn):
        user = _load_user(call, named["account"], named["name"])
        return frozenset() if user.is_admin else _FOR_ADMINISTRATORS
    if ":role/" not in arn:
        raise InvalidRequest(f"Invalid Entity Arn: {arn} does not clearly define entity type and name.")
    if not roles.is_foreign(call.yard.records, arn):
        _require_role(call, arn)
    return _FOR_ADMINISTRATORS | _FOR_LONG_TERM_KEYS


def _require_role(call: Call, arn: str) -> None:
    name = arn.rpartition("/")[2]
    try:
        role = roles.load_role(call.yard.records, arn)
    except NotFound:
        raise NotFound(roles.KIND, name) from None
    if call.caller.scope not in (None, role.key.account):
        raise NotFound(roles.KIND, name)


def _load_user(call: Call, account: str, name: str) -> User:
    if call.caller.scope not in (None, account):
        raise NotFound("user", name)
    try:
        user = call.yard.records.user(account)
    except NotFound:
        raise NotFound("user", name) from None
    if user.name != name or user.removed_at is not None:
        raise NotFound("user", name)
    return user


def _result(action: str, resources: list[str], decision: str) -> Shape:
    result: Shape = {
        "EvalActionName": action,
        "EvalResourceName": resources[0] if resources else "*",
        "EvalDecision": decision,
        "MatchedStatements": [],
        "MissingContextValues": [],
    }
    if not resources:
        return result
    return result | {
        "ResourceSpecificResults": [
            {
                "EvalResourceName": resource,
                "EvalResourceDecision": decision,
                "MatchedStatements": [],
                "MissingContextValues": [],
            }
            for resource in resources
        ]
    }
