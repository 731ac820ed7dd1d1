"""The role of a training job: the one that the request names, or the default role of the account in its place."""

from dataclasses import dataclass

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.server import roles
from trainyard.server.records.contract import Records, ResourceKey


@dataclass(frozen=True, slots=True)
class JobRole:
    """The name of a role of the job's account. `notes` say if it stands for another one."""

    name: str
    notes: tuple[str, ...] = ()


def job_role_of(records: Records, arn: str, *, account: str) -> JobRole:
    """Return the role of a job; InvalidRequest if the account does not have it.

    Scripts carry the ARN of a role in an account of AWS, which no user of the yard can have. The default role of the
    job's account stands for it. A role of another account of the yard is refused.
    """
    try:
        role = roles.load_role(records, arn)
    except NotFound:
        role = None
    if role is not None and role.key.account == account:
        return JobRole(role.key.name)
    if role is None and roles.is_foreign(records, arn):
        return _default_role(records, arn, account=account)
    raise InvalidRequest(
        f"Could not assume role {arn}: your account has no such role. `aws iam list-roles` lists its roles."
    )


def _default_role(records: Records, arn: str, *, account: str) -> JobRole:
    name = records.user(account).role
    try:
        records.load(ResourceKey(account, roles.KIND, name))
    except NotFound as error:
        raise InvalidRequest(
            f"Could not assume role {arn}: its account is not one of this yard, and your account's default role {name} "
            f"was deleted. Create {name} again, or name one of the roles that `aws iam list-roles` lists."
        ) from error
    return JobRole(name, (f"The account of {arn} is not one of this yard; the job has your default role {name}.",))
