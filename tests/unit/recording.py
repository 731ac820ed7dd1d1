"""An API that records calls and answers from a table, for tests of the calls that clients make."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Answer = dict[str, Any] | Callable[[dict[str, Any]], dict[str, Any]]


class RecordingApi:
    """Replaces a yard where only the calls matter. tests/system has whole conversations."""

    def __init__(self, **answers: Answer) -> None:
        identity = {"Account": "123456789012", "Arn": "arn:aws:sts::123456789012:assumed-role/Trainer/me"}
        role = {"Role": {"Arn": "arn:aws:iam::123456789012:role/path/Trainer"}}
        ended = {"Lines": [{"kind": "ended", "status": "Completed", "cursor": "1"}]}
        usual: dict[str, Answer] = {"GetCallerIdentity": identity, "GetRole": role, "FollowJob": ended}
        self.answers: dict[str, Answer] = usual | answers
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        self.asked.append((operation, params))
        answer = self.answers.get(operation, {})
        return answer(params) if callable(answer) else answer

    @contextlib.contextmanager
    def stream(self, service: str, operation: str, **params: Any) -> Iterator[Iterator[bytes]]:
        """Yield the objects of the stream, which the table has under "Lines"."""
        lines: Iterable[Any] = self.call(service, operation, **params)["Lines"]
        yield (json.dumps(line).encode() for line in lines)

    def only(self, operation: str) -> dict[str, Any]:
        """Return the request of the only call of an operation."""
        (params,) = [params for name, params in self.asked if name == operation]
        return params
