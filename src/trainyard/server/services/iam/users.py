"""Users, their access keys, and the account of each: only an administrator adds and removes users."""

from collections.abc import Sequence

from trainyard.foundation.arns import unique_id, user_arn
from trainyard.foundation.errors import InvalidRequest, NotPermitted
from trainyard.server import roles
from trainyard.server.identity import KEYS_PER_USER, is_temporary
from trainyard.server.records.contract import AccessKey, Query, User
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.iam.documents import INLINE_QUOTA, POLICY_QUOTA, TRUST_QUOTA
from trainyard.server.services.iam.policies import VERSIONS_PER_POLICY
from trainyard.server.services.iam.resources import INSTANCE_PROFILE, POLICY, policy_of
from trainyard.server.services.iam.role_policies import ATTACHED_PER_ROLE
from trainyard.server.services.iam.shapes import add_tags, all_of, page_of, page_of_tags, tag_shapes, tags_of

# The path of users who see all accounts.
ADMINISTRATORS = "/administrators/"
OTHERS = "/"
ACTIVE, INACTIVE = "Active", "Inactive"

# Counts of GetAccountSummary that are always zero, because the yard has no such things.
_ALWAYS_ZERO = (
    "AccountAccessKeysPresent",
    "AccountMFAEnabled",
    "AccountSigningCertificatesPresent",
    "Groups",
    "MFADevices",
    "MFADevicesInUse",
    "Providers",
    "ServerCertificates",
)


def create_user(call: Call, request: Shape) -> Shape:
    name, path = request["UserName"], request.get("Path", OTHERS)
    _require_administrator(call, "CreateUser", name)
    if path not in (OTHERS, ADMINISTRATORS):
        raise InvalidRequest(
            f'The Path of a user must be "{OTHERS}", or "{ADMINISTRATORS}" for an administrator; it is "{path}".'
        )
    if "PermissionsBoundary" in request:
        raise InvalidRequest("Trainyard does not enforce PermissionsBoundary; leave it out.")
    tags = tags_of(request)
    user = call.yard.identities.add_user(name, now=call.now, is_admin=path == ADMINISTRATORS, has_key=False).user
    call.yard.records.set_tags(user.account, _arn(user), tags)
    return {"User": _full_shape(call, user)}


def get_user(call: Call, request: Shape) -> Shape:
    return {"User": _full_shape(call, named_user(call, request, "GetUser"))}


def list_users(call: Call, request: Shape) -> Shape:
    prefix = request.get("PathPrefix", "/")
    matches = [user for user in visible_users(call) if _path(user).startswith(prefix)]
    return page_of("Users", matches, request, key=lambda user: user.name, shape=_shape)


def delete_user(call: Call, request: Shape) -> Shape:
    """Remove a user with all its keys; AWS requires that the keys are deleted first."""
    _require_administrator(call, "DeleteUser", request["UserName"])
    user = call.yard.identities.user_named(request["UserName"])
    call.yard.identities.remove_user(user.account, now=call.now)
    records = call.yard.records
    records.remove_tags(user.account, _arn(user), list(records.tags(user.account, _arn(user))))
    return {}


def create_access_key(call: Call, request: Shape) -> Shape:
    _require_long_term_key(call)
    user = named_user(call, request, "CreateAccessKey")
    key = call.yard.identities.create_access_key(user.account, now=call.now)
    return {"AccessKey": _key_shape(user, key, is_active=True) | {"SecretAccessKey": key.secret}}


def list_access_keys(call: Call, request: Shape) -> Shape:
    user = named_user(call, request, "ListAccessKeys")
    inactive = call.yard.identities.inactive_keys(user.account)
    return page_of(
        "AccessKeyMetadata",
        call.yard.records.access_keys(user.account),
        request,
        key=lambda key: key.id,
        shape=lambda key: _key_shape(user, key, is_active=key.id not in inactive),
    )


def update_access_key(call: Call, request: Shape) -> Shape:
    """Deactivate an access key, or activate it again."""
    _require_long_term_key(call)
    user = named_user(call, request, "UpdateAccessKey")
    if request["Status"] not in (ACTIVE, INACTIVE):
        raise InvalidRequest(
            f'The Status of an access key must be {ACTIVE} or {INACTIVE}; it is "{request["Status"]}".'
        )
    is_active = request["Status"] == ACTIVE
    call.yard.identities.set_key_active(user.account, request["AccessKeyId"], is_active=is_active, now=call.now)
    return {}


def delete_access_key(call: Call, request: Shape) -> Shape:
    _require_long_term_key(call)
    user = named_user(call, request, "DeleteAccessKey")
    call.yard.identities.delete_access_key(user.account, request["AccessKeyId"], now=call.now)
    return {}


def tag_user(call: Call, request: Shape) -> Shape:
    user = named_user(call, request, "TagUser")
    add_tags(call, user.account, arn=_arn(user), request=request)
    return {}


def untag_user(call: Call, request: Shape) -> Shape:
    user = named_user(call, request, "UntagUser")
    call.yard.records.remove_tags(user.account, _arn(user), request["TagKeys"])
    return {}


def list_user_tags(call: Call, request: Shape) -> Shape:
    user = named_user(call, request, "ListUserTags")
    return page_of_tags(call.yard.records.tags(user.account, _arn(user)), request)


def get_account_summary(call: Call, _request: Shape) -> Shape:
    """Return counts and the quotas that the yard enforces; other quotas of AWS are left out."""
    policies = list(all_of(call.yard.records, Query(POLICY, account=call.caller.scope)))
    counts = {
        "Users": len(visible_users(call)),
        "Roles": _count(call, roles.KIND),
        "InstanceProfiles": _count(call, INSTANCE_PROFILE),
        "Policies": len(policies),
        "PolicyVersionsInUse": sum(len(policy_of(policy).versions) for policy in policies),
    }
    quotas = {
        "AccessKeysPerUserQuota": KEYS_PER_USER,
        "AssumeRolePolicySizeQuota": TRUST_QUOTA[1],
        "AttachedPoliciesPerRoleQuota": ATTACHED_PER_ROLE,
        "PolicySizeQuota": POLICY_QUOTA[1],
        "RolePolicySizeQuota": INLINE_QUOTA[1],
        "VersionsPerPolicyQuota": VERSIONS_PER_POLICY,
    }
    return {"SummaryMap": counts | quotas | dict.fromkeys(_ALWAYS_ZERO, 0)}


def list_account_aliases(_call: Call, _request: Shape) -> Shape:
    return {"AccountAliases": [], "IsTruncated": False}


def list_groups(_call: Call, _request: Shape) -> Shape:
    """Return none: a yard has no groups."""
    return {"Groups": [], "IsTruncated": False}


def list_groups_for_user(call: Call, request: Shape) -> Shape:
    """Return none: a yard has no groups."""
    named_user(call, request, "ListGroupsForUser")
    return {"Groups": [], "IsTruncated": False}


def list_user_policies(call: Call, request: Shape) -> Shape:
    """Return none: only roles have policies here."""
    named_user(call, request, "ListUserPolicies")
    return {"PolicyNames": [], "IsTruncated": False}


def list_attached_user_policies(call: Call, request: Shape) -> Shape:
    """Return none: only roles have policies here."""
    named_user(call, request, "ListAttachedUserPolicies")
    return {"AttachedPolicies": [], "IsTruncated": False}


OPERATIONS: Operations = {
    "CreateUser": create_user,
    "GetUser": get_user,
    "ListUsers": list_users,
    "DeleteUser": delete_user,
    "CreateAccessKey": create_access_key,
    "ListAccessKeys": list_access_keys,
    "UpdateAccessKey": update_access_key,
    "DeleteAccessKey": delete_access_key,
    "TagUser": tag_user,
    "UntagUser": untag_user,
    "ListUserTags": list_user_tags,
    "GetAccountSummary": get_account_summary,
    "ListAccountAliases": list_account_aliases,
    "ListGroups": list_groups,
    "ListGroupsForUser": list_groups_for_user,
    "ListUserPolicies": list_user_policies,
    "ListAttachedUserPolicies": list_attached_user_policies,
}


def named_user(call: Call, request: Shape, operation: str) -> User:
    """Return the user that the request names, or the caller if it names none."""
    name = request.get("UserName", call.caller.user)
    if name == call.caller.user:
        return call.yard.records.user(call.account)
    _require_administrator(call, operation, name)
    return call.yard.identities.user_named(name)


def visible_users(call: Call) -> Sequence[User]:
    records = call.yard.records
    return records.users() if call.caller.is_admin else [records.user(call.account)]


def _require_administrator(call: Call, operation: str, name: str) -> None:
    """Refuse callers who are not administrators, in the same words whether or not the user exists."""
    if not call.caller.is_admin:
        raise NotPermitted(
            f"User: {call.caller.arn} is not authorized to perform: iam:{operation} on resource: user {name}"
        )


def _require_long_term_key(call: Call) -> None:
    """Refuse temporary credentials: a job could otherwise create keys that outlive it."""
    if is_temporary(call.caller.access_key_id):
        raise NotPermitted("Access keys cannot be created, changed or deleted with temporary credentials.")


def _path(user: User) -> str:
    return ADMINISTRATORS if user.is_admin else OTHERS


def _arn(user: User) -> str:
    return user_arn(user.account, user.name, _path(user))


def _shape(user: User) -> Shape:
    return {
        "Path": _path(user),
        "UserName": user.name,
        "UserId": unique_id("AIDA", user.account),
        "Arn": _arn(user),
        "CreateDate": user.created_at,
    }


def _full_shape(call: Call, user: User) -> Shape:
    tags = call.yard.records.tags(user.account, _arn(user))
    return _shape(user) | ({"Tags": tag_shapes(tags)} if tags else {})


def _key_shape(user: User, key: AccessKey, *, is_active: bool) -> Shape:
    return {
        "UserName": user.name,
        "AccessKeyId": key.id,
        "Status": ACTIVE if is_active else INACTIVE,
        "CreateDate": key.created_at,
    }


def _count(call: Call, kind: str) -> int:
    return sum(1 for _ in all_of(call.yard.records, Query(kind, account=call.caller.scope)))
