"""The policies of a role: attached managed policies, inline policies, and the permissions boundary."""

from dataclasses import replace

from trainyard.foundation.errors import LimitExceeded, NotFound
from trainyard.server import roles
from trainyard.server.records.contract import Resource
from trainyard.server.roles import Role
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.iam.changes import touch
from trainyard.server.services.iam.documents import INLINE_QUOTA, percent_encode, require_policy, require_size
from trainyard.server.services.iam.resources import load_policy, parse_policy_arn
from trainyard.server.services.iam.roles import boundary_of, change_role, named_role
from trainyard.server.services.iam.shapes import page_of

ATTACHED_PER_ROLE = 10


def attach_role_policy(call: Call, request: Shape) -> Shape:
    """Attach a policy of AWS or of the role's account. Attaching it again changes nothing."""
    arn = request["PolicyArn"]
    if parse_policy_arn(arn).is_aws_managed:
        change_role(call, request, lambda role: _with_policy(role, arn))
        return {}
    policy = _load_attachable(call, arn)
    if policy.key.account != named_role(call, request).key.account:
        raise NotFound("attachable policy", arn)
    change_role(call, request, lambda role: _with_policy(role, arn))
    if not touch(call, policy):
        change_role(call, request, lambda role: _without_policy(role, arn))
        raise NotFound("attachable policy", arn)
    return {}


def detach_role_policy(call: Call, request: Shape) -> Shape:
    arn = request["PolicyArn"]

    def detach(role: Role) -> Role:
        if arn not in role.attached:
            raise NotFound("attached policy", arn)
        return _without_policy(role, arn)

    change_role(call, request, detach)
    return {}


def list_attached_role_policies(call: Call, request: Shape) -> Shape:
    prefix = request.get("PathPrefix", "/")
    named = map(parse_policy_arn, roles.role_of(named_role(call, request)).attached)
    return page_of(
        "AttachedPolicies",
        (policy for policy in named if policy.path.startswith(prefix)),
        request,
        key=lambda policy: policy.arn,
        shape=lambda policy: {"PolicyName": policy.name, "PolicyArn": policy.arn},
    )


def put_role_policy(call: Call, request: Shape) -> Shape:
    document = require_policy(request["PolicyDocument"], INLINE_QUOTA)

    def put(role: Role) -> Role:
        inline = {**role.inline, request["PolicyName"]: document}
        require_size(list(inline.values()), INLINE_QUOTA)
        return replace(role, inline=inline)

    change_role(call, request, put)
    return {}


def get_role_policy(call: Call, request: Shape) -> Shape:
    resource, name = named_role(call, request), request["PolicyName"]
    inline = roles.role_of(resource).inline
    if name not in inline:
        raise NotFound("role policy", name)
    return {"RoleName": resource.key.name, "PolicyName": name, "PolicyDocument": percent_encode(inline[name])}


def list_role_policies(call: Call, request: Shape) -> Shape:
    inline = roles.role_of(named_role(call, request)).inline
    return page_of("PolicyNames", inline, request, key=str, shape=str)


def delete_role_policy(call: Call, request: Shape) -> Shape:
    name = request["PolicyName"]

    def drop(role: Role) -> Role:
        if name not in role.inline:
            raise NotFound("role policy", name)
        return replace(role, inline={key: text for key, text in role.inline.items() if key != name})

    change_role(call, request, drop)
    return {}


def put_role_permissions_boundary(call: Call, request: Shape) -> Shape:
    arn = boundary_of(call, request, account=named_role(call, request).key.account)
    change_role(call, request, lambda role: replace(role, boundary=arn))
    if not parse_policy_arn(arn).is_aws_managed and not touch(call, _load_attachable(call, arn)):
        change_role(call, request, lambda role: replace(role, boundary=""))
        raise NotFound("boundary", arn)
    return {}


def delete_role_permissions_boundary(call: Call, request: Shape) -> Shape:
    change_role(call, request, lambda role: replace(role, boundary=""))
    return {}


OPERATIONS: Operations = {
    "AttachRolePolicy": attach_role_policy,
    "DetachRolePolicy": detach_role_policy,
    "ListAttachedRolePolicies": list_attached_role_policies,
    "PutRolePolicy": put_role_policy,
    "GetRolePolicy": get_role_policy,
    "ListRolePolicies": list_role_policies,
    "DeleteRolePolicy": delete_role_policy,
    "PutRolePermissionsBoundary": put_role_permissions_boundary,
    "DeleteRolePermissionsBoundary": delete_role_permissions_boundary,
}


def _load_attachable(call: Call, arn: str) -> Resource:
    try:
        return load_policy(call, arn)
    except NotFound:
        raise NotFound("attachable policy", arn) from None


def _with_policy(role: Role, arn: str) -> Role:
    if arn in role.attached:
        return role
    if len(role.attached) >= ATTACHED_PER_ROLE:
        raise LimitExceeded(f"Cannot exceed quota for PoliciesPerRole: {ATTACHED_PER_ROLE}")
    return replace(role, attached=(*role.attached, arn))


def _without_policy(role: Role, arn: str) -> Role:
    return replace(role, attached=tuple(known for known in role.attached if known != arn))
