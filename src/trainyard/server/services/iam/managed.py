"""Policies that stand on their own: those of an account, with versions, and AWS's, of which only the name is known."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainyard.foundation.arns import policy_arn, unique_id
from trainyard.foundation.clock import from_micros
from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.server import roles
from trainyard.server.records.contract import Query, Records, Resource, ResourceKey
from trainyard.server.services.contract import Call, Shape
from trainyard.server.services.iam.faults import validation_error
from trainyard.server.services.iam.paging import all_of
from trainyard.server.services.iam.tags import tag_shapes

KIND = "policy"
AWS = "aws"  # stands where the account stands in the ARN of a policy that AWS keeps


@dataclass(frozen=True, slots=True)
class Version:
    id: str
    document: str
    created_at: int  # µs


@dataclass(frozen=True, slots=True)
class Policy:
    """What is known of an account's policy beyond its name. Versions are never empty; a number is not used again."""

    path: str
    description: str
    versions: tuple[Version, ...]
    default: str
    next_number: int
    updated_at: int  # µs

    @property
    def body(self) -> Mapping[str, Any]:
        return asdict(self) | {"versions": [asdict(version) for version in self.versions]}

    def version(self, id: str) -> Version | None:  # noqa: A002 - the domain's word
        return next((version for version in self.versions if version.id == id), None)


@dataclass(frozen=True, slots=True)
class PolicyName:
    """A policy as its ARN names it."""

    arn: str
    account: str
    path: str
    name: str

    @property
    def is_of_aws(self) -> bool:
        return self.account == AWS


@dataclass(frozen=True, slots=True)
class Usage:
    """How many roles use a policy, by its ARN: to permit, and as the boundary of what is permitted."""

    attached: Counter[str]
    boundaries: Counter[str]


def parse_policy_arn(arn: str) -> PolicyName:
    named = _ARN.fullmatch(arn)
    if named is None and not arn.startswith("arn:"):
        raise validation_error(f"ARN {arn} is not valid.")
    if named is None:
        raise InvalidRequest(f"ARN {arn} is not valid.")
    return PolicyName(arn, named["account"], named["path"], named["name"])


_ARN = re.compile(r"arn:aws:iam::(?P<account>[0-9]{12}|aws):policy(?P<path>/(?:[!-~]+/)?)(?P<name>[\w+=,.@-]{1,128})")


def policy_of(resource: Resource) -> Policy:
    body = dict(resource.body)
    return Policy(**body | {"versions": tuple(Version(**version) for version in body["versions"])})


def arn_of(resource: Resource) -> str:
    return policy_arn(resource.key.account, resource.key.name, resource.body["path"])


def load_policy(call: Call, arn: str) -> Resource:
    """The account's policy of an ARN; NotFound when there is none that the caller may see."""
    named = parse_policy_arn(arn)
    if named.is_of_aws or call.caller.scope not in (None, named.account):
        raise NotFound(KIND, arn)
    try:
        resource = call.yard.records.load(ResourceKey(named.account, KIND, named.name))
    except NotFound:
        raise NotFound(KIND, arn) from None
    if arn_of(resource) != arn:
        raise NotFound(KIND, arn)
    return resource


def attached_to(records: Records, account: str, arn: str) -> Sequence[Resource]:
    """The account's roles that a policy is attached to."""
    return [role for role in all_of(records, Query(roles.KIND, account=account)) if arn in role.body["attached"]]


def bounded_by(records: Records, account: str, arn: str) -> Sequence[Resource]:
    """The account's roles that a policy is the boundary of."""
    return [role for role in all_of(records, Query(roles.KIND, account=account)) if arn == role.body["boundary"]]


def usage(records: Records, account: str | None) -> Usage:
    counted = Usage(Counter(), Counter())
    for resource in all_of(records, Query(roles.KIND, account=account)):
        role = roles.role_of(resource)
        counted.attached.update(role.attached)
        counted.boundaries.update([role.boundary] if role.boundary else [])
    return counted


def policy_shape(resource: Resource, used: Usage, tags: Mapping[str, str] | None = None) -> Shape:
    """What is known of an account's policy; a list, which gives no tags, leaves out the description as well."""
    policy, arn = policy_of(resource), arn_of(resource)
    shape = _shape(parse_policy_arn(arn), used, id_seed=resource.id) | {
        "DefaultVersionId": policy.default,
        "CreateDate": resource.created_at,
        "UpdateDate": from_micros(policy.updated_at),
    }
    if tags is None:
        return shape
    described = {"Description": policy.description} if policy.description else {}
    return shape | described | {"Tags": tag_shapes(tags)}


def aws_policy_shape(named: PolicyName, used: Usage) -> Shape:
    """A policy of AWS. Nobody but AWS knows its text and its dates; the yard knows who uses it here."""
    return _shape(named, used, id_seed=named.arn) | {"DefaultVersionId": "v1", "Tags": []}


def _shape(named: PolicyName, used: Usage, *, id_seed: str) -> Shape:
    return {
        "PolicyName": named.name,
        "PolicyId": unique_id("ANPA", id_seed),
        "Arn": named.arn,
        "Path": named.path,
        "AttachmentCount": used.attached[named.arn],
        "PermissionsBoundaryUsageCount": used.boundaries[named.arn],
        "IsAttachable": True,
    }
