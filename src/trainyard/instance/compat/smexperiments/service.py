"""Calls the yard, through the boto3 client of the script if it has one."""

import datetime
import random
import re
import string
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trainyard._sdk.experiments.sessions import RunSession, open_session

if TYPE_CHECKING:
    from trainyard._sdk.connection import Api


class BotoService:
    """The operations of SageMaker, through a boto3 client or a session of Trainyard."""

    def __init__(self, client: Any = None) -> None:
        self._client = client
        self._session: RunSession | None = None

    @property
    def session(self) -> RunSession:
        """A session for what the client cannot do, created at the first use."""
        self._session = self._session or open_session()
        return self._session

    @property
    def api(self) -> "Api":
        return self.session.api

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        """Call an operation; members that are None are left out."""
        given = {name: value for name, value in request.items() if value is not None}
        if self._client is None:
            return self.api.call("sagemaker", operation, **given)
        method = getattr(self._client, re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower())
        answer: dict[str, Any] = method(**given)
        return answer

    def pages(self, operation: str, member: str, **request: Any) -> Iterator[dict[str, Any]]:
        """Yield the entries of all pages of a list."""
        while True:
            answer = self.call(operation, **request)
            yield from answer[member]
            if "NextToken" not in answer:
                return
            request["NextToken"] = answer["NextToken"]


def unique_name(prefix: str) -> str:
    """Return a name of the prefix, the time, and four letters."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d-%H%M%S")
    letters = "".join(random.choices(string.ascii_lowercase, k=4))
    return f"{prefix}-{now}-{letters}"
