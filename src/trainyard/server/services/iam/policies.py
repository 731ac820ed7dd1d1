"""Managed policies and their versions."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from trainyard.foundation.arns import policy_arn, unique_id
from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.errors import LimitExceeded, NotFound
from trainyard.server import roles
from trainyard.server.records.contract import Draft, Query, Resource, ResourceKey
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.iam.changes import change_body, delete_unused
from trainyard.server.services.iam.documents import POLICY_QUOTA, percent_encode, require_policy
from trainyard.server.services.iam.faults import delete_conflict
from trainyard.server.services.iam.resources import (
    POLICY,
    Policy,
    PolicyArn,
    PolicyUsage,
    PolicyVersion,
    arn_of_policy,
    load_policy,
    parse_policy_arn,
    policy_of,
    policy_usage,
    roles_with_boundary,
    roles_with_policy,
)
from trainyard.server.services.iam.shapes import add_tags, all_of, page_of, page_of_tags, tag_shapes, tags_of

VERSIONS_PER_POLICY = 5


def create_policy(call: Call, request: Shape) -> Shape:
    now = to_micros(call.now)
    policy = Policy(
        path=request.get("Path", "/"),
        description=request.get("Description", ""),
        versions=(PolicyVersion("v1", require_policy(request["PolicyDocument"], POLICY_QUOTA), now),),
        default="v1",
        next_number=2,
        updated_at=now,
    )
    key = ResourceKey(call.account, POLICY, request["PolicyName"])
    arn = policy_arn(key.account, key.name, policy.path)
    draft = Draft(key, region="", body=policy.body, tags=tags_of(request, ignores_case=False), arn=arn)
    shape = _full_shape(call, call.yard.records.create(draft, now=call.now))
    return {"Policy": {name: value for name, value in shape.items() if name != "Tags" or value}}


def get_policy(call: Call, request: Shape) -> Shape:
    named = parse_policy_arn(request["PolicyArn"])
    if named.is_aws_managed:
        return {"Policy": _aws_policy_shape(named, policy_usage(call.yard.records, call.account))}
    return {"Policy": _full_shape(call, load_policy(call, named.arn))}


def list_policies(call: Call, request: Shape) -> Shape:
    """List the account's policies and the AWS managed policies that its roles use; the yard knows no others."""
    records, scope = call.yard.records, request.get("Scope", "All")
    used = policy_usage(records, call.caller.scope)
    shapes = []
    if scope != "AWS":
        found = all_of(records, Query(POLICY, account=call.caller.scope))
        shapes += [_policy_shape(resource, used) for resource in found]
    if scope != "Local":
        named = [parse_policy_arn(arn) for arn in used.attached.keys() | used.boundaries.keys()]
        shapes += [_aws_policy_shape(name, used) for name in named if name.is_aws_managed]
    matches = [shape for shape in shapes if _is_match(shape, request)]
    return page_of("Policies", matches, request, key=lambda shape: str(shape["Arn"]), shape=dict)


def delete_policy(call: Call, request: Shape) -> Shape:
    arn, records = request["PolicyArn"], call.yard.records

    def require_unused(resource: Resource) -> None:
        if len(policy_of(resource).versions) > 1:
            raise delete_conflict(
                "This policy has more than one version. Before you delete a policy, you must delete the policy's "
                "versions. The default version is deleted with the policy."
            )
        account = resource.key.account
        if roles_with_policy(records, account, arn) or roles_with_boundary(records, account, arn):
            raise delete_conflict("Cannot delete a policy attached to entities.")

    delete_unused(call, lambda: load_policy(call, arn), require_unused=require_unused)
    return {}


def list_entities_for_policy(call: Call, request: Shape) -> Shape:
    named = parse_policy_arn(request["PolicyArn"])
    account = call.account if named.is_aws_managed else load_policy(call, named.arn).key.account
    prefix, kind = request.get("PathPrefix", "/"), request.get("EntityFilter", "Role")
    is_boundary = request.get("PolicyUsageFilter") == "PermissionsBoundary"
    users = (roles_with_boundary if is_boundary else roles_with_policy)(call.yard.records, account, named.arn)
    found = [user for user in users if kind == "Role" and user.body["path"].startswith(prefix)]
    page = page_of("PolicyRoles", found, request, key=lambda role: role.key.name, shape=_role_entry)
    return {"PolicyGroups": [], "PolicyUsers": []} | page


def create_policy_version(call: Call, request: Shape) -> Shape:
    document = require_policy(request["PolicyDocument"], POLICY_QUOTA)
    now = to_micros(call.now)

    def add(policy: Policy) -> Policy:
        if len(policy.versions) >= VERSIONS_PER_POLICY:
            raise LimitExceeded(
                f"A managed policy can have up to {VERSIONS_PER_POLICY} versions. "
                "Before you create a new version, you must delete an existing version."
            )
        version = PolicyVersion(f"v{policy.next_number}", document, now)
        return replace(
            policy,
            versions=(*policy.versions, version),
            default=version.id if request.get("SetAsDefault") else policy.default,
            next_number=policy.next_number + 1,
            updated_at=now,
        )

    policy = _change_policy(call, request, add)
    return {"PolicyVersion": _version_shape(policy, policy.versions[-1])}


def get_policy_version(call: Call, request: Shape) -> Shape:
    if parse_policy_arn(request["PolicyArn"]).is_aws_managed:
        raise NotFound("document of the AWS managed policy", request["PolicyArn"])
    policy = policy_of(load_policy(call, request["PolicyArn"]))
    version = _version(policy, request)
    return {"PolicyVersion": _version_shape(policy, version) | {"Document": percent_encode(version.document)}}


def list_policy_versions(call: Call, request: Shape) -> Shape:
    policy = policy_of(load_policy(call, request["PolicyArn"]))
    return page_of(
        "Versions",
        policy.versions,
        request,
        # Newest first.
        key=lambda version: f"{10**9 - int(version.id[1:]):010}",
        shape=lambda version: _version_shape(policy, version),
    )


def set_default_policy_version(call: Call, request: Shape) -> Shape:
    def choose(policy: Policy) -> Policy:
        return replace(policy, default=_version(policy, request).id, updated_at=to_micros(call.now))

    _change_policy(call, request, choose)
    return {}


def delete_policy_version(call: Call, request: Shape) -> Shape:
    def drop(policy: Policy) -> Policy:
        dropped = _version(policy, request)
        if dropped.id == policy.default:
            raise delete_conflict("Cannot delete the default version of a policy.")
        return replace(policy, versions=tuple(version for version in policy.versions if version is not dropped))

    _change_policy(call, request, drop)
    return {}


def tag_policy(call: Call, request: Shape) -> Shape:
    resource = load_policy(call, request["PolicyArn"])
    add_tags(call, resource.key.account, arn=arn_of_policy(resource), request=request, ignores_case=False)
    return {}


def untag_policy(call: Call, request: Shape) -> Shape:
    resource = load_policy(call, request["PolicyArn"])
    call.yard.records.remove_tags(resource.key.account, arn_of_policy(resource), request["TagKeys"])
    return {}


def list_policy_tags(call: Call, request: Shape) -> Shape:
    resource = load_policy(call, request["PolicyArn"])
    return page_of_tags(call.yard.records.tags(resource.key.account, arn_of_policy(resource)), request)


OPERATIONS: Operations = {
    "CreatePolicy": create_policy,
    "GetPolicy": get_policy,
    "ListPolicies": list_policies,
    "DeletePolicy": delete_policy,
    "ListEntitiesForPolicy": list_entities_for_policy,
    "CreatePolicyVersion": create_policy_version,
    "GetPolicyVersion": get_policy_version,
    "ListPolicyVersions": list_policy_versions,
    "SetDefaultPolicyVersion": set_default_policy_version,
    "DeletePolicyVersion": delete_policy_version,
    "TagPolicy": tag_policy,
    "UntagPolicy": untag_policy,
    "ListPolicyTags": list_policy_tags,
}


def _full_shape(call: Call, resource: Resource) -> Shape:
    records, account = call.yard.records, resource.key.account
    return _policy_shape(resource, policy_usage(records, account), records.tags(account, arn_of_policy(resource)))


def _is_match(shape: Shape, request: Shape) -> bool:
    purpose = request.get("PolicyUsageFilter")
    uses = {
        None: shape["AttachmentCount"] + shape["PermissionsBoundaryUsageCount"],
        "PermissionsPolicy": shape["AttachmentCount"],
        "PermissionsBoundary": shape["PermissionsBoundaryUsageCount"],
    }[purpose]
    if not uses and (request.get("OnlyAttached") or purpose):
        return False
    return str(shape["Path"]).startswith(request.get("PathPrefix", "/"))


def _role_entry(role: Resource) -> Shape:
    return {"RoleName": role.key.name, "RoleId": roles.id_of(role)}


def _version(policy: Policy, request: Shape) -> PolicyVersion:
    version = policy.version(request["VersionId"])
    if version is None:
        raise NotFound("attachable policy", f"{request['PolicyArn']} version {request['VersionId']}")
    return version


def _version_shape(policy: Policy, version: PolicyVersion) -> Shape:
    return {
        "VersionId": version.id,
        "IsDefaultVersion": version.id == policy.default,
        "CreateDate": from_micros(version.created_at),
    }


def _change_policy(call: Call, request: Shape, change: Callable[[Policy], Policy]) -> Policy:
    def load() -> Resource:
        return load_policy(call, request["PolicyArn"])

    return policy_of(change_body(call, load, lambda resource: change(policy_of(resource)).body))


def _policy_shape(resource: Resource, used: PolicyUsage, tags: Mapping[str, str] | None = None) -> Shape:
    """Return the shape of an account's policy, without its description where a list omits the tags."""
    policy, arn = policy_of(resource), arn_of_policy(resource)
    shape = _shape(parse_policy_arn(arn), used, id_seed=resource.id) | {
        "DefaultVersionId": policy.default,
        "CreateDate": resource.created_at,
        "UpdateDate": from_micros(policy.updated_at),
    }
    if tags is None:
        return shape
    described = {"Description": policy.description} if policy.description else {}
    return shape | described | {"Tags": tag_shapes(tags)}


def _aws_policy_shape(named: PolicyArn, used: PolicyUsage) -> Shape:
    """Return the shape of an AWS managed policy. Its document and dates are unknown here; its usage is known."""
    return _shape(named, used, id_seed=named.arn) | {"DefaultVersionId": "v1", "Tags": []}


def _shape(named: PolicyArn, used: PolicyUsage, *, id_seed: str) -> Shape:
    return {
        "PolicyName": named.name,
        "PolicyId": unique_id("ANPA", id_seed),
        "Arn": named.arn,
        "Path": named.path,
        "AttachmentCount": used.attached[named.arn],
        "PermissionsBoundaryUsageCount": used.boundaries[named.arn],
        "IsAttachable": True,
    }
