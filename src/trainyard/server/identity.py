"""Who calls."""

from dataclasses import dataclass

from trainyard.foundation.arns import assumed_role_arn


@dataclass(frozen=True, slots=True)
class Caller:
    """A user, speaking as a role in a session."""

    account: str
    user: str
    role: str
    session: str
    is_admin: bool
    access_key_id: str

    @property
    def arn(self) -> str:
        return assumed_role_arn(self.account, self.role, self.session)

    @property
    def scope(self) -> str | None:
        """The account that lists are cut down to; None, for an administrator, is all of them."""
        return None if self.is_admin else self.account


class Identities: ...
