"""Roles: create, describe, change, tag, delete."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from trainyard.foundation.errors import NotFound
from trainyard.server import roles
from trainyard.server.records.contract import Query, Resource, ResourceKey, SortBy
from trainyard.server.roles import Role
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.iam.changes import change_body, delete_unused
from trainyard.server.services.iam.documents import percent_encode, require_trust
from trainyard.server.services.iam.faults import delete_conflict
from trainyard.server.services.iam.resources import load_policy, parse_policy_arn, profiles_with_role
from trainyard.server.services.iam.shapes import add_tags, page_of_records, page_of_tags, tag_shapes, tags_of
from trainyard.server.services.visibility import load_visible


def create_role(call: Call, request: Shape) -> Shape:
    role = Role(
        path=request.get("Path", "/"),
        trust=require_trust(request["AssumeRolePolicyDocument"]),
        description=request.get("Description", ""),
        max_session_s=request.get("MaxSessionDuration", 3600),
        boundary=boundary_of(call, request, account=call.account),
    )
    tags = tags_of(request)
    key = ResourceKey(call.account, roles.KIND, request["RoleName"])
    made = roles.create_role(call.yard.records, key, role, now=call.now, tags=tags)
    return {"Role": _full_shape(call, made)}


def get_role(call: Call, request: Shape) -> Shape:
    return {"Role": _full_shape(call, named_role(call, request)) | {"RoleLastUsed": {}}}


def list_roles(call: Call, request: Shape) -> Shape:
    prefix = request.get("PathPrefix", "/")
    return page_of_records(
        "Roles",
        call.yard.records,
        Query(roles.KIND, account=call.caller.scope, sort_by=SortBy.NAME),
        request,
        is_match=lambda resource: roles.role_of(resource).path.startswith(prefix),
        shape=role_shape,
    )


def update_role(call: Call, request: Shape) -> Shape:
    change_role(
        call,
        request,
        lambda role: replace(
            role,
            description=request.get("Description", role.description),
            max_session_s=request.get("MaxSessionDuration", role.max_session_s),
        ),
    )
    return {}


def update_role_description(call: Call, request: Shape) -> Shape:
    changed = change_role(call, request, lambda role: replace(role, description=request["Description"]))
    return {"Role": _full_shape(call, changed)}


def update_assume_role_policy(call: Call, request: Shape) -> Shape:
    trust = require_trust(request["PolicyDocument"])
    change_role(call, request, lambda role: replace(role, trust=trust))
    return {}


def delete_role(call: Call, request: Shape) -> Shape:
    def require_unused(resource: Resource) -> None:
        role = roles.role_of(resource)
        if profiles_with_role(call.yard.records, resource):
            raise delete_conflict("Cannot delete entity, must remove roles from instance profile first.")
        if role.attached:
            raise delete_conflict("Cannot delete entity, must detach all policies first.")
        if role.inline:
            raise delete_conflict("Cannot delete entity, must delete policies first.")

    delete_unused(call, lambda: named_role(call, request), require_unused=require_unused)
    return {}


def tag_role(call: Call, request: Shape) -> Shape:
    resource = named_role(call, request)
    add_tags(call, resource.key.account, arn=roles.arn_of(resource), request=request)
    return {}


def untag_role(call: Call, request: Shape) -> Shape:
    resource = named_role(call, request)
    call.yard.records.remove_tags(resource.key.account, roles.arn_of(resource), request["TagKeys"])
    return {}


def list_role_tags(call: Call, request: Shape) -> Shape:
    return page_of_tags(_tags(call, named_role(call, request)), request)


OPERATIONS: Operations = {
    "CreateRole": create_role,
    "GetRole": get_role,
    "ListRoles": list_roles,
    "UpdateRole": update_role,
    "UpdateRoleDescription": update_role_description,
    "UpdateAssumeRolePolicy": update_assume_role_policy,
    "DeleteRole": delete_role,
    "TagRole": tag_role,
    "UntagRole": untag_role,
    "ListRoleTags": list_role_tags,
}


def named_role(call: Call, request: Shape) -> Resource:
    return load_visible(call, roles.KIND, request["RoleName"])


def change_role(call: Call, request: Shape, change: Callable[[Role], Role]) -> Resource:
    """Apply a change to the role that the request names; return the changed role."""
    return change_body(call, lambda: named_role(call, request), lambda resource: change(roles.role_of(resource)).body)


def boundary_of(call: Call, request: Shape, *, account: str) -> str:
    """Return the ARN of the permissions boundary that a request names for a role in `account`, or ""."""
    arn = str(request.get("PermissionsBoundary", ""))
    if not arn or parse_policy_arn(arn).is_aws_managed:
        return arn
    try:
        policy = load_policy(call, arn)
    except NotFound:
        raise NotFound("boundary", arn) from None
    if policy.key.account != account:
        raise NotFound("boundary", arn)
    return arn


def role_shape(resource: Resource) -> Shape:
    """Return the shape of a role in a list."""
    role = roles.role_of(resource)
    shape: Shape = {
        "Path": role.path,
        "RoleName": resource.key.name,
        "RoleId": roles.id_of(resource),
        "Arn": roles.arn_of(resource),
        "CreateDate": resource.created_at,
        "AssumeRolePolicyDocument": percent_encode(role.trust),
        "MaxSessionDuration": role.max_session_s,
    }
    return shape | {"Description": role.description} if role.description else shape


def _full_shape(call: Call, resource: Resource) -> Shape:
    """Return the shape of a role with the members that a list omits."""
    shape = role_shape(resource)
    if tags := _tags(call, resource):
        shape["Tags"] = tag_shapes(tags)
    if boundary := roles.role_of(resource).boundary:
        shape["PermissionsBoundary"] = {
            "PermissionsBoundaryType": "PermissionsBoundaryPolicy",
            "PermissionsBoundaryArn": boundary,
        }
    return shape


def _tags(call: Call, resource: Resource) -> Mapping[str, str]:
    return call.yard.records.tags(resource.key.account, roles.arn_of(resource))
