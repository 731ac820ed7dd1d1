"""Policies and instance profiles as the records store them.

The policies of AWS are known by their names only. Instance profiles name a role for machines to take; the yard starts
no such machines.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainyard.foundation.arns import instance_profile_arn, policy_arn, unique_id
from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.server import roles
from trainyard.server.records.contract import Query, Records, Resource, ResourceKey
from trainyard.server.services.contract import Call
from trainyard.server.services.iam.faults import validation_error
from trainyard.server.services.iam.shapes import all_of

POLICY = "policy"
INSTANCE_PROFILE = "instance-profile"

# Takes the place of the account in the ARN of an AWS managed policy.
AWS = "aws"


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    id: str
    document: str
    created_at: int  # µs


@dataclass(frozen=True, slots=True)
class Policy:
    """What an account's policy has beyond its name. It has at least one version; numbers are never reused."""

    path: str
    description: str
    versions: tuple[PolicyVersion, ...]
    default: str
    next_number: int
    updated_at: int  # µs

    @property
    def body(self) -> Mapping[str, Any]:
        return asdict(self) | {"versions": [asdict(version) for version in self.versions]}

    def version(self, id: str) -> PolicyVersion | None:  # noqa: A002 - the domain's word
        return next((version for version in self.versions if version.id == id), None)


@dataclass(frozen=True, slots=True)
class PolicyArn:
    """The parts of a policy's ARN."""

    arn: str
    account: str
    path: str
    name: str

    @property
    def is_aws_managed(self) -> bool:
        return self.account == AWS


@dataclass(frozen=True, slots=True)
class PolicyUsage:
    """How many roles use a policy, by its ARN: attached, and as their permissions boundary."""

    attached: Counter[str]
    boundaries: Counter[str]


@dataclass(frozen=True, slots=True)
class InstanceProfile:
    """What an instance profile has beyond its name. `role` is the name of its only role, or ""."""

    path: str = "/"
    role: str = ""

    @property
    def body(self) -> Mapping[str, Any]:
        return asdict(self)


def parse_policy_arn(arn: str) -> PolicyArn:
    parsed = _POLICY_ARN.fullmatch(arn)
    if parsed is None and not arn.startswith("arn:"):
        raise validation_error(f"ARN {arn} is not valid.")
    if parsed is None:
        raise InvalidRequest(f"ARN {arn} is not valid.")
    return PolicyArn(arn, parsed["account"], parsed["path"], parsed["name"])


_POLICY_ARN = re.compile(
    r"arn:aws:iam::(?P<account>[0-9]{12}|aws):policy(?P<path>/(?:[!-~]+/)?)(?P<name>[\w+=,.@-]{1,128})"
)


def policy_of(resource: Resource) -> Policy:
    body = dict(resource.body)
    return Policy(**body | {"versions": tuple(PolicyVersion(**version) for version in body["versions"])})


def arn_of_policy(resource: Resource) -> str:
    return policy_arn(resource.key.account, resource.key.name, resource.body["path"])


def load_policy(call: Call, arn: str) -> Resource:
    """Load the account's policy with this ARN; NotFound if the caller can see none."""
    parsed = parse_policy_arn(arn)
    if parsed.is_aws_managed or call.caller.scope not in (None, parsed.account):
        raise NotFound(POLICY, arn)
    try:
        resource = call.yard.records.load(ResourceKey(parsed.account, POLICY, parsed.name))
    except NotFound:
        raise NotFound(POLICY, arn) from None
    if arn_of_policy(resource) != arn:
        raise NotFound(POLICY, arn)
    return resource


def roles_with_policy(records: Records, account: str, arn: str) -> Sequence[Resource]:
    """The account's roles to which a policy is attached."""
    return [role for role in all_of(records, Query(roles.KIND, account=account)) if arn in role.body["attached"]]


def roles_with_boundary(records: Records, account: str, arn: str) -> Sequence[Resource]:
    """The account's roles whose permissions boundary is this policy."""
    return [role for role in all_of(records, Query(roles.KIND, account=account)) if arn == role.body["boundary"]]


def policy_usage(records: Records, account: str | None) -> PolicyUsage:
    """Count how the roles of an account, or of all accounts, use policies."""
    usage = PolicyUsage(Counter(), Counter())
    for resource in all_of(records, Query(roles.KIND, account=account)):
        role = roles.role_of(resource)
        usage.attached.update(role.attached)
        usage.boundaries.update([role.boundary] if role.boundary else [])
    return usage


def profile_of(resource: Resource) -> InstanceProfile:
    return InstanceProfile(**resource.body)


def arn_of_profile(resource: Resource) -> str:
    return instance_profile_arn(resource.key.account, resource.key.name, resource.body["path"])


def id_of_profile(resource: Resource) -> str:
    return unique_id("AIPA", resource.id)


def profiles_with_role(records: Records, role: Resource) -> Sequence[Resource]:
    """The instance profiles that name a role."""
    profiles = all_of(records, Query(INSTANCE_PROFILE, account=role.key.account))
    return [profile for profile in profiles if profile_of(profile).role == role.key.name]
