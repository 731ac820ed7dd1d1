"""Instance profiles: create, describe, tag, delete, add and remove the role."""

from collections.abc import Callable
from dataclasses import replace

from trainyard.foundation.arns import instance_profile_arn
from trainyard.foundation.errors import LimitExceeded, NotFound
from trainyard.server import roles
from trainyard.server.records.contract import Draft, Query, Resource, ResourceKey, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.iam.changes import change_body, delete_unused, touch
from trainyard.server.services.iam.faults import delete_conflict
from trainyard.server.services.iam.resources import (
    INSTANCE_PROFILE,
    InstanceProfile,
    arn_of_profile,
    id_of_profile,
    profile_of,
    profiles_with_role,
)
from trainyard.server.services.iam.roles import named_role, role_shape
from trainyard.server.services.iam.shapes import add_tags, page_of, page_of_records, page_of_tags, tag_shapes, tags_of
from trainyard.server.services.visibility import load_visible
from trainyard.wire.fault import Fault

ROLES_PER_PROFILE = 1


def create_instance_profile(call: Call, request: Shape) -> Shape:
    profile = InstanceProfile(path=request.get("Path", "/"))
    key = ResourceKey(call.account, INSTANCE_PROFILE, request["InstanceProfileName"])
    arn = instance_profile_arn(key.account, key.name, profile.path)
    tags = tags_of(request, ignores_case=False)
    made = call.yard.records.create(Draft(key, region="", body=profile.body, tags=tags, arn=arn), now=call.now)
    return {"InstanceProfile": _shape(call, made) | ({"Tags": tag_shapes(tags)} if tags else {})}


def get_instance_profile(call: Call, request: Shape) -> Shape:
    resource = _load_profile(call, request)
    tags = call.yard.records.tags(resource.key.account, arn_of_profile(resource))
    return {"InstanceProfile": _shape(call, resource) | {"Tags": tag_shapes(tags)}}


def list_instance_profiles(call: Call, request: Shape) -> Shape:
    prefix = request.get("PathPrefix", "/")
    return page_of_records(
        "InstanceProfiles",
        call.yard.records,
        Query(INSTANCE_PROFILE, account=call.caller.scope, sort_by=SortBy.NAME),
        request,
        is_match=lambda resource: profile_of(resource).path.startswith(prefix),
        shape=lambda resource: _shape(call, resource),
    )


def list_instance_profiles_for_role(call: Call, request: Shape) -> Shape:
    return page_of(
        "InstanceProfiles",
        profiles_with_role(call.yard.records, named_role(call, request)),
        request,
        key=lambda resource: resource.key.name,
        shape=lambda resource: _shape(call, resource),
    )


def delete_instance_profile(call: Call, request: Shape) -> Shape:
    def require_unused(resource: Resource) -> None:
        if profile_of(resource).role:
            raise delete_conflict("Cannot delete entity, must remove roles from instance profile first.")

    delete_unused(call, lambda: _load_profile(call, request), require_unused=require_unused)
    return {}


def add_role_to_instance_profile(call: Call, request: Shape) -> Shape:
    profile, role = _load_profile(call, request), named_role(call, request)
    if role.key.account != profile.key.account:
        raise NotFound(roles.KIND, request["RoleName"])

    def add(profile: InstanceProfile) -> InstanceProfile:
        if profile.role:
            raise LimitExceeded(f"Cannot exceed quota for InstanceSessionsPerInstanceProfile: {ROLES_PER_PROFILE}")
        return replace(profile, role=role.key.name)

    _change(call, request, add)
    if not touch(call, role):
        _change(call, request, lambda profile: replace(profile, role=""))
        raise NotFound(roles.KIND, role.key.name)
    return {}


def remove_role_from_instance_profile(call: Call, request: Shape) -> Shape:
    _load_profile(call, request)
    role = named_role(call, request).key.name

    def remove(profile: InstanceProfile) -> InstanceProfile:
        if profile.role != role:
            name = request["InstanceProfileName"]
            raise Fault("NoSuchEntity", f"Role {role} in Instance Profile {name} cannot be found.", status=404)
        return replace(profile, role="")

    _change(call, request, remove)
    return {}


def tag_instance_profile(call: Call, request: Shape) -> Shape:
    resource = _load_profile(call, request)
    add_tags(call, resource.key.account, arn=arn_of_profile(resource), request=request, ignores_case=False)
    return {}


def untag_instance_profile(call: Call, request: Shape) -> Shape:
    resource = _load_profile(call, request)
    call.yard.records.remove_tags(resource.key.account, arn_of_profile(resource), request["TagKeys"])
    return {}


def list_instance_profile_tags(call: Call, request: Shape) -> Shape:
    resource = _load_profile(call, request)
    return page_of_tags(call.yard.records.tags(resource.key.account, arn_of_profile(resource)), request)


OPERATIONS: Operations = {
    "CreateInstanceProfile": create_instance_profile,
    "GetInstanceProfile": get_instance_profile,
    "ListInstanceProfiles": list_instance_profiles,
    "ListInstanceProfilesForRole": list_instance_profiles_for_role,
    "DeleteInstanceProfile": delete_instance_profile,
    "AddRoleToInstanceProfile": add_role_to_instance_profile,
    "RemoveRoleFromInstanceProfile": remove_role_from_instance_profile,
    "TagInstanceProfile": tag_instance_profile,
    "UntagInstanceProfile": untag_instance_profile,
    "ListInstanceProfileTags": list_instance_profile_tags,
}


def _load_profile(call: Call, request: Shape) -> Resource:
    return load_visible(call, INSTANCE_PROFILE, request["InstanceProfileName"])


def _change(call: Call, request: Shape, change: Callable[[InstanceProfile], InstanceProfile]) -> None:
    change_body(call, lambda: _load_profile(call, request), lambda resource: change(profile_of(resource)).body)


def _shape(call: Call, resource: Resource) -> Shape:
    profile = profile_of(resource)
    return {
        "Path": profile.path,
        "InstanceProfileName": resource.key.name,
        "InstanceProfileId": id_of_profile(resource),
        "Arn": arn_of_profile(resource),
        "CreateDate": resource.created_at,
        "Roles": _roles(call, resource.key.account, profile.role),
    }


def _roles(call: Call, account: str, name: str) -> list[Shape]:
    try:
        return [role_shape(call.yard.records.load(ResourceKey(account, roles.KIND, name)))] if name else []
    except NotFound:
        # The role was deleted a moment ago.
        return []
