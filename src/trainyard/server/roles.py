"""IAM roles of an account. Clients can read them; nothing enforces them."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from trainyard.foundation.arns import role_arn, unique_id
from trainyard.foundation.errors import NotFound
from trainyard.server.records.contract import Draft, Records, Resource, ResourceKey

KIND = "role"

SAGEMAKER_TRUST = (
    '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", '
    '"Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}]}'
)
SAGEMAKER_FULL_ACCESS = "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"


@dataclass(frozen=True, slots=True)
class Role:
    """A role, apart from its account, name and times.

    `trust` and the values of `inline` are JSON policy documents as they were given. `attached` are ARNs of policies,
    oldest first.
    """

    path: str = "/"
    trust: str = SAGEMAKER_TRUST
    description: str = ""
    max_session_s: int = 3600
    boundary: str = ""
    attached: tuple[str, ...] = ()
    inline: Mapping[str, str] = field(default_factory=dict)

    @property
    def max_session(self) -> timedelta:
        return timedelta(seconds=self.max_session_s)

    @property
    def body(self) -> Mapping[str, Any]:
        return asdict(self) | {"attached": list(self.attached)}


def role_of(resource: Resource) -> Role:
    body = dict(resource.body)
    return Role(**body | {"attached": tuple(body["attached"])})


def arn_of(resource: Resource) -> str:
    return role_arn(resource.key.account, resource.key.name, resource.body["path"])


def id_of(resource: Resource) -> str:
    return unique_id("AROA", resource.id)


def create_role(
    records: Records, key: ResourceKey, role: Role, *, now: datetime, tags: Mapping[str, str] | None = None
) -> Resource:
    """Create a role. AlreadyExists when the account has one with that name."""
    arn = role_arn(key.account, key.name, role.path)
    # IAM has no regions.
    return records.create(Draft(key, region="", body=role.body, tags=tags or {}, arn=arn), now=now)


def load_role(records: Records, arn: str) -> Resource:
    """Load the role of an ARN. NotFound when there is none, or it has another path."""
    named = _ARN.fullmatch(arn)
    if named is None:
        raise NotFound(KIND, arn)
    resource = records.load(ResourceKey(named["account"], KIND, named["name"]))
    if arn_of(resource) != arn:
        raise NotFound(KIND, arn)
    return resource


def is_foreign(records: Records, arn: str) -> bool:
    """Whether an ARN names a role of an account that the yard has never had, such as an account of AWS."""
    named = _ARN_OF_ANY_PARTITION.fullmatch(arn)
    if named is None:
        return False
    try:
        records.user(named["account"])
    except NotFound:
        return True
    return False


_ARN = re.compile(r"arn:aws:iam::(?P<account>[0-9]{12}):role/(?:.*/)?(?P<name>[^/]+)")
_ARN_OF_ANY_PARTITION = re.compile(r"arn:aws[a-z-]*:iam::(?P<account>[0-9]{12}):role/.+")
