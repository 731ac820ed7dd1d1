"""STS: the caller's identity, and temporary credentials for the roles of its account."""

import re
from datetime import timedelta

from trainyard.foundation.arns import assumed_role_arn, unique_id
from trainyard.foundation.errors import InvalidRequest, NotFound, NotPermitted, Unavailable
from trainyard.server import roles
from trainyard.server.identity import is_temporary
from trainyard.server.records.contract import AccessKey, Resource, ResourceKey
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.wire.fault import Fault, FaultRow, FaultTable

DEFAULT_ROLE_SESSION = timedelta(hours=1)
DEFAULT_USER_SESSION = timedelta(hours=12)
MAX_CHAINED_SESSION = timedelta(hours=1)

_ARN = re.compile(r"arn:[^:]+:[^:]+:[^:]*:[^:]*:.+", re.DOTALL)


def get_caller_identity(call: Call, _request: Shape) -> Shape:
    caller = call.caller
    return {
        "Account": caller.account,
        "Arn": caller.arn,
        "UserId": f"{_role_id(call, caller.role)}:{caller.session}",
    }


def assume_role(call: Call, request: Shape) -> Shape:
    """Return credentials for a role of the caller's account, which see only that account."""
    _refuse_unenforced(request, "Policy", "PolicyArns", "SerialNumber", "TokenCode")
    _require_session_tags(request)
    role, session = _load_assumable_role(call, request["RoleArn"]), request["RoleSessionName"]
    lifetime = _session_lifetime(request, DEFAULT_ROLE_SESSION)
    if is_temporary(call.caller.access_key_id) and lifetime > MAX_CHAINED_SESSION:
        raise InvalidRequest(
            "The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by role chaining"
        )
    if lifetime > roles.role_of(role).max_session:
        raise InvalidRequest("The requested DurationSeconds exceeds the MaxSessionDuration set for this role.")
    name = role.key.name
    key = call.yard.identities.assume_role(
        call.account, name, session=session, lifetime=lifetime, now=call.now, within=call.caller.access_key_id
    )
    answer = {
        "Credentials": _credentials(key),
        "AssumedRoleUser": {
            "AssumedRoleId": f"{roles.id_of(role)}:{session}",
            "Arn": assumed_role_arn(call.account, name, session),
        },
    }
    return answer | {name: request[name] for name in ("SourceIdentity",) if name in request}


def get_session_token(call: Call, request: Shape) -> Shape:
    _refuse_unenforced(request, "SerialNumber", "TokenCode")
    if is_temporary(call.caller.access_key_id):
        raise NotPermitted("Cannot call GetSessionToken with session credentials")
    lifetime = _session_lifetime(request, DEFAULT_USER_SESSION)
    key = call.yard.identities.session_token(call.account, lifetime=lifetime, now=call.now)
    return {"Credentials": _credentials(key)}


def get_access_key_info(call: Call, request: Shape) -> Shape:
    try:
        key = call.yard.records.access_key(request["AccessKeyId"])
    except NotFound:
        key = None
    if key is None or call.caller.scope not in (None, key.account):
        raise NotFound("access key", request["AccessKeyId"])
    return {"Account": key.account}


OPERATIONS: Operations = {
    "GetCallerIdentity": get_caller_identity,
    "AssumeRole": assume_role,
    "GetSessionToken": get_session_token,
    "GetAccessKeyInfo": get_access_key_info,
}

FAULTS = FaultTable(
    {
        InvalidRequest: FaultRow("ValidationError"),
        NotFound: FaultRow("NoSuchEntity", 404),
        NotPermitted: FaultRow("AccessDenied", 403),
        Unavailable: FaultRow("ServiceUnavailable", 503),
    }
)


def _role_id(call: Call, name: str) -> str:
    """Return the id that GetRole shows, or one that belongs to no role if the role was deleted."""
    try:
        return roles.id_of(call.yard.records.load(ResourceKey(call.account, roles.KIND, name)))
    except NotFound:
        return unique_id("AROA", f"{call.account}/{name}")


def _require_session_tags(request: Shape) -> None:
    """Check the session tags. The yard does not use them otherwise."""
    keys = [tag["Key"].lower() for tag in request.get("Tags", ())]
    if len(set(keys)) < len(keys):
        raise _invalid_value("Duplicate tag keys found. Please note that Tag keys are case insensitive.")
    if not {key.lower() for key in request.get("TransitiveTagKeys", ())} <= set(keys):
        raise _invalid_value("The specified transitive tag key must be included in the requested tags.")


def _invalid_value(message: str) -> Fault:
    return Fault("InvalidParameterValue", message)


def _load_assumable_role(call: Call, arn: str) -> Resource:
    if not _ARN.fullmatch(arn):
        raise InvalidRequest(f"{arn} is invalid")
    try:
        role = roles.load_role(call.yard.records, arn)
    except NotFound:
        role = None
    if role is None or role.key.account != call.account:
        # As on AWS, the answer is the same for a missing role and for a role of another account.
        raise NotPermitted(f"User: {call.caller.arn} is not authorized to perform: sts:AssumeRole on resource: {arn}")
    return role


def _refuse_unenforced(request: Shape, *members: str) -> None:
    for name in members:
        if request.get(name):
            raise InvalidRequest(f"Trainyard does not enforce {name}; leave it out.")


def _session_lifetime(request: Shape, default: timedelta) -> timedelta:
    return timedelta(seconds=request["DurationSeconds"]) if "DurationSeconds" in request else default


def _credentials(key: AccessKey) -> Shape:
    return {
        "AccessKeyId": key.id,
        "SecretAccessKey": key.secret,
        "SessionToken": key.session_token,
        "Expiration": key.expires_at,
    }
