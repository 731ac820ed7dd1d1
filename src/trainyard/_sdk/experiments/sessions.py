"""Which session a run uses: that of the SDK, or in a training job without the SDK one of its own."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from trainyard._sdk.connection import Api


class RunSession(Protocol):
    """What runs need of a session."""

    @property
    def api(self) -> "Api": ...

    def default_bucket(self) -> str: ...

    def upload_data(
        self, path: str, bucket: str, key_prefix: str, *, extra_args: Mapping[str, str] | None = None
    ) -> str: ...


def open_session() -> RunSession:
    """Return a new session."""
    # Jobs have only the part of the SDK that runs need.
    if find_spec("trainyard.session") is not None:
        from trainyard.session import Session

        return cast("RunSession", Session())
    from trainyard._sdk.experiments.job_session import JobSession

    return cast("RunSession", JobSession())
