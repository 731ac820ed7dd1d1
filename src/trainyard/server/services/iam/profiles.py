"""Instance profiles as an account remembers them: a name by which machines are given a role, of which none is here."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trainyard.foundation.arns import instance_profile_arn, unique_id
from trainyard.server.records.contract import Query, Records, Resource
from trainyard.server.services.iam.paging import all_of

KIND = "instance-profile"


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of an instance profile beyond its name. `role` is the name of its one role, or ""."""

    path: str = "/"
    role: str = ""

    @property
    def body(self) -> Mapping[str, Any]:
        return asdict(self)


def profile_of(resource: Resource) -> Profile:
    return Profile(**resource.body)


def arn_of(resource: Resource) -> str:
    return instance_profile_arn(resource.key.account, resource.key.name, resource.body["path"])


def id_of(resource: Resource) -> str:
    return unique_id("AIPA", resource.id)


def with_role(records: Records, role: Resource) -> Sequence[Resource]:
    """The instance profiles that have a role."""
    profiles = all_of(records, Query(KIND, account=role.key.account))
    return [profile for profile in profiles if profile_of(profile).role == role.key.name]
