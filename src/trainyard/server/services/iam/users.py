"""Users and their key pairs. Each user is an account of its own, which only an administrator adds and removes."""

from collections.abc import Sequence

from trainyard.foundation.arns import unique_id, user_arn
from trainyard.foundation.errors import InvalidRequest, NotPermitted
from trainyard.server.identity import is_temporary
from trainyard.server.records.contract import AccessKey, User
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.iam.paging import page_of
from trainyard.server.services.iam.tags import add_tags, page_of_tags, tag_shapes, tags_of

ADMINISTRATORS = "/administrators/"  # the path of those who see all accounts
OTHERS = "/"
ACTIVE, INACTIVE = "Active", "Inactive"


def create_user(call: Call, request: Shape) -> Shape:
    name, path = request["UserName"], request.get("Path", OTHERS)
    _demand_administrator(call, "CreateUser", name)
    if path not in (OTHERS, ADMINISTRATORS):
        raise InvalidRequest(f'The path of a user is "{OTHERS}", or "{ADMINISTRATORS}" for an administrator.')
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
    wanted = [user for user in visible_users(call) if _path(user).startswith(prefix)]
    return page_of("Users", wanted, request, key=lambda user: user.name, shape=_shape)


def delete_user(call: Call, request: Shape) -> Shape:
    """Remove a user and all its keys in one step, where AWS wants the keys deleted first."""
    _demand_administrator(call, "DeleteUser", request["UserName"])
    user = call.yard.identities.user_named(request["UserName"])
    call.yard.identities.remove_user(user.account, now=call.now)
    records = call.yard.records
    records.remove_tags(user.account, _arn(user), list(records.tags(user.account, _arn(user))))
    return {}


def create_access_key(call: Call, request: Shape) -> Shape:
    _demand_lasting_key(call)
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
    """Make a key pair useless, or useful again."""
    _demand_lasting_key(call)
    user = named_user(call, request, "UpdateAccessKey")
    if request["Status"] not in (ACTIVE, INACTIVE):
        raise InvalidRequest(f"The status of an access key is {ACTIVE} or {INACTIVE}.")
    is_active = request["Status"] == ACTIVE
    call.yard.identities.set_key_active(user.account, request["AccessKeyId"], is_active=is_active, now=call.now)
    return {}


def delete_access_key(call: Call, request: Shape) -> Shape:
    _demand_lasting_key(call)
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
}


def named_user(call: Call, request: Shape, operation: str) -> User:
    """The user that the request names, or the caller itself."""
    name = request.get("UserName", call.caller.user)
    if name == call.caller.user:
        return call.yard.records.user(call.account)
    _demand_administrator(call, operation, name)
    return call.yard.identities.user_named(name)


def visible_users(call: Call) -> Sequence[User]:
    records = call.yard.records
    return records.users() if call.caller.is_admin else [records.user(call.account)]


def _demand_administrator(call: Call, operation: str, name: str) -> None:
    """The same refusal whether or not there is such a user."""
    if not call.caller.is_admin:
        raise NotPermitted(
            f"User: {call.caller.arn} is not authorized to perform: iam:{operation} on resource: user {name}"
        )


def _demand_lasting_key(call: Call) -> None:
    """A job has temporary credentials; were it to make lasting ones, they would outlive it."""
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
