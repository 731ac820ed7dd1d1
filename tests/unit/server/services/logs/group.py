"""One log group and its streams, for one caller."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.unit.server.services.accounts import NOON, As
from trainyard.server.services.contract import Shape

NOON_MS = int(NOON.timestamp() * 1000)


@dataclass(frozen=True)
class Group:
    caller: As
    name: str = "/jobs"

    @classmethod
    def made_by(cls, caller: As, *streams: str, name: str = "/jobs") -> "Group":
        group = cls(caller, name)
        group("CreateLogGroup")
        for stream in streams:
            group("CreateLogStream", logStreamName=stream)
        return group

    def __call__(self, operation: str, **request: Any) -> Shape:
        return self.caller("logs", operation, logGroupName=self.name, **request)

    def put(self, stream: str, *messages: str, at: int = NOON_MS, step: int = 0) -> Shape:
        events = [{"timestamp": at + number * step, "message": message} for number, message in enumerate(messages)]
        return self("PutLogEvents", logStreamName=stream, logEvents=events)

    def get(self, stream: str, **request: Any) -> list[str]:
        request = {"startFromHead": True} | request
        return [event["message"] for event in self("GetLogEvents", logStreamName=stream, **request)["events"]]

    def search(self, **request: Any) -> list[str]:
        return [event["message"] for event in self("FilterLogEvents", **request)["events"]]

    def search_all(self, **request: Any) -> list[Shape]:
        """Follow nextToken to the end."""
        answer = self("FilterLogEvents", **request)
        events: list[Shape] = list(answer["events"])
        while "nextToken" in answer:
            answer = self("FilterLogEvents", nextToken=answer["nextToken"], **request)
            events += answer["events"]
        return events

    def at(self, moment: datetime) -> "Group":
        return Group(self.caller.at(moment), self.name)


def after(**delay: float) -> datetime:
    return NOON + timedelta(**delay)
