"""Policies that stand on their own, and their versions."""

from collections.abc import Callable
from dataclasses import replace

from trainyard.foundation.arns import policy_arn
from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.errors import LimitExceeded, NotFound, Unavailable
from trainyard.server import roles
from trainyard.server.records.contract import Change, Draft, Query, Resource, ResourceKey
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.iam import managed
from trainyard.server.services.iam.documents import POLICY_QUOTA, checked_policy, encoded
from trainyard.server.services.iam.faults import delete_conflict
from trainyard.server.services.iam.managed import Policy, Version, arn_of, load_policy, policy_of
from trainyard.server.services.iam.paging import all_of, page_of
from trainyard.server.services.iam.tags import add_tags, page_of_tags, tags_of

VERSIONS_PER_POLICY = 5

_ATTEMPTS = 20


def create_policy(call: Call, request: Shape) -> Shape:
    now = to_micros(call.now)
    policy = Policy(
        path=request.get("Path", "/"),
        description=request.get("Description", ""),
        versions=(Version("v1", checked_policy(request["PolicyDocument"], POLICY_QUOTA), now),),
        default="v1",
        next_number=2,
        updated_at=now,
    )
    key = ResourceKey(call.account, managed.KIND, request["PolicyName"])
    arn = policy_arn(key.account, key.name, policy.path)
    draft = Draft(key, region="", body=policy.body, tags=tags_of(request, ignores_case=False), arn=arn)
    shape = _full_shape(call, call.yard.records.create(draft, now=call.now))
    return {"Policy": {name: value for name, value in shape.items() if name != "Tags" or value}}


def get_policy(call: Call, request: Shape) -> Shape:
    named = managed.parse_policy_arn(request["PolicyArn"])
    if named.is_of_aws:
        return {"Policy": managed.aws_policy_shape(named, managed.usage(call.yard.records, call.account))}
    return {"Policy": _full_shape(call, load_policy(call, named.arn))}


def list_policies(call: Call, request: Shape) -> Shape:
    """The account's policies and, of AWS's, those that its roles use: the yard knows no others."""
    records, scope = call.yard.records, request.get("Scope", "All")
    used = managed.usage(records, call.caller.scope)
    shapes = []
    if scope != "AWS":
        found = all_of(records, Query(managed.KIND, account=call.caller.scope))
        shapes += [managed.policy_shape(resource, used) for resource in found]
    if scope != "Local":
        named = [managed.parse_policy_arn(arn) for arn in used.attached.keys() | used.boundaries.keys()]
        shapes += [managed.aws_policy_shape(name, used) for name in named if name.is_of_aws]
    wanted = [shape for shape in shapes if _is_wanted(shape, request)]
    return page_of("Policies", wanted, request, key=lambda shape: str(shape["Arn"]), shape=dict)


def delete_policy(call: Call, request: Shape) -> Shape:
    arn, records = request["PolicyArn"], call.yard.records
    for _ in range(_ATTEMPTS):
        resource = load_policy(call, arn)
        if len(policy_of(resource).versions) > 1:
            raise delete_conflict(
                "This policy has more than one version. Before you delete a policy, you must delete the policy's "
                "versions. The default version is deleted with the policy."
            )
        account = resource.key.account
        if managed.attached_to(records, account, arn) or managed.bounded_by(records, account, arn):
            raise delete_conflict("Cannot delete a policy attached to entities.")
        # Attaching raises the revision of the policy afterwards, so one that came between is noticed here.
        if records.delete(resource, now=call.now):
            return {}
    raise _contended(arn)


def list_entities_for_policy(call: Call, request: Shape) -> Shape:
    named = managed.parse_policy_arn(request["PolicyArn"])
    account = call.account if named.is_of_aws else load_policy(call, named.arn).key.account
    prefix, kind = request.get("PathPrefix", "/"), request.get("EntityFilter", "Role")
    is_boundary = request.get("PolicyUsageFilter") == "PermissionsBoundary"
    users = (managed.bounded_by if is_boundary else managed.attached_to)(call.yard.records, account, named.arn)
    found = [user for user in users if kind == "Role" and user.body["path"].startswith(prefix)]
    page = page_of("PolicyRoles", found, request, key=lambda role: role.key.name, shape=_role_entry)
    return {"PolicyGroups": [], "PolicyUsers": []} | page


def create_policy_version(call: Call, request: Shape) -> Shape:
    document = checked_policy(request["PolicyDocument"], POLICY_QUOTA)
    now = to_micros(call.now)

    def add(policy: Policy) -> Policy:
        if len(policy.versions) >= VERSIONS_PER_POLICY:
            raise LimitExceeded(
                f"A managed policy can have up to {VERSIONS_PER_POLICY} versions. "
                "Before you create a new version, you must delete an existing version."
            )
        version = Version(f"v{policy.next_number}", document, now)
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
    if managed.parse_policy_arn(request["PolicyArn"]).is_of_aws:
        raise NotFound("text known to Trainyard of the AWS-managed policy", request["PolicyArn"])
    policy = policy_of(load_policy(call, request["PolicyArn"]))
    version = _version(policy, request)
    return {"PolicyVersion": _version_shape(policy, version) | {"Document": encoded(version.document)}}


def list_policy_versions(call: Call, request: Shape) -> Shape:
    policy = policy_of(load_policy(call, request["PolicyArn"]))
    return page_of(
        "Versions",
        policy.versions,
        request,
        key=lambda version: f"{10**9 - int(version.id[1:]):010}",  # the newest first
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
    add_tags(call, resource.key.account, arn=arn_of(resource), request=request, ignores_case=False)
    return {}


def untag_policy(call: Call, request: Shape) -> Shape:
    resource = load_policy(call, request["PolicyArn"])
    call.yard.records.remove_tags(resource.key.account, arn_of(resource), request["TagKeys"])
    return {}


def list_policy_tags(call: Call, request: Shape) -> Shape:
    resource = load_policy(call, request["PolicyArn"])
    return page_of_tags(call.yard.records.tags(resource.key.account, arn_of(resource)), request)


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
    return managed.policy_shape(resource, managed.usage(records, account), records.tags(account, arn_of(resource)))


def _is_wanted(shape: Shape, request: Shape) -> bool:
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


def _version(policy: Policy, request: Shape) -> Version:
    version = policy.version(request["VersionId"])
    if version is None:
        raise NotFound("attachable policy", f"{request['PolicyArn']} version {request['VersionId']}")
    return version


def _version_shape(policy: Policy, version: Version) -> Shape:
    return {
        "VersionId": version.id,
        "IsDefaultVersion": version.id == policy.default,
        "CreateDate": from_micros(version.created_at),
    }


def _change_policy(call: Call, request: Shape, change: Callable[[Policy], Policy]) -> Policy:
    for _ in range(_ATTEMPTS):
        resource = load_policy(call, request["PolicyArn"])
        changed = change(policy_of(resource))
        if call.yard.records.apply(resource, Change(body=changed.body), now=call.now):
            return changed
    raise _contended(request["PolicyArn"])


def _contended(arn: str) -> Unavailable:
    return Unavailable(f'The policy "{arn}" is being changed by too many others; try again.')
