"""What the agent knows of the rules in a training process, whenever that is stopped."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run
from trainyard.insight.rules.catalog import make_rule
from trainyard.instance.agent.layout import ProgramUser
from trainyard.instance.agent.watch.event_server import EventServer
from trainyard.instance.rule_evaluation.event_client import EventClient
from trainyard.instance.rule_evaluation.rule_subscriber import RuleSubscriber
from trainyard.link.event_protocol import SOCKET
from trainyard.link.folders import InstanceFolder

HEALTHY = {"gradient/Net_1.weight": np.ones((2, 2))}
VANISHED = {"gradient/Net_1.weight": np.zeros((2, 2))}


@pytest.fixture
def folder(tmp_path: Path) -> InstanceFolder:
    made = InstanceFolder(tmp_path / "algo-1")
    (made.ml / SOCKET).parent.mkdir(parents=True)
    return made


@pytest.fixture
def events(folder: InstanceFolder) -> Iterator[EventServer]:
    made = EventServer(folder, ProgramUser(None))
    yield made
    made.close()


@pytest.fixture
def subscriber(folder: InstanceFolder, events: EventServer) -> RuleSubscriber:
    rules = {"nan": make_rule("NotANumber", {}), "vanishing": make_rule("VanishingGradient", {})}
    return RuleSubscriber(rules, client=EventClient(str(folder.ml)), fire=lambda _step, _rule: None)


def received(events: EventServer) -> list[Mapping[str, Any]]:
    return [event.payload for event in events.drain()]


def test_a_program_that_is_stopped_by_a_finding_has_reported_the_steps_of_all_rules(
    events: EventServer, subscriber: RuleSubscriber
) -> None:
    run = Run()
    for number in range(100):
        subscriber.take(run.step(HEALTHY, at_s=1 + number / 1000))
    subscriber.take(run.step(VANISHED, at_s=1.1))
    *_, other, found = received(events)
    assert (other["rule"], other["status"], other["judged"]) == ("nan", "InProgress", 101)
    # Last, since the agent may stop the program as soon as it has read it.
    assert (found["rule"], found["status"], found["judged"]) == ("vanishing", "IssuesFound", 101)
    assert found["finding"]["step"] == 100


def test_progress_is_reported_once_a_second_and_at_the_end(events: EventServer, subscriber: RuleSubscriber) -> None:
    run = Run()
    for number in range(25):
        subscriber.take(run.step(HEALTHY, at_s=1 + number / 10))
    assert [payload["judged"] for payload in received(events) if payload["rule"] == "nan"] == [1, 11, 21]
    subscriber.end()
    last = {payload["rule"]: (payload["status"], payload["judged"]) for payload in received(events)}
    assert last == {"nan": ("NoIssuesFound", 25), "vanishing": ("NoIssuesFound", 25)}
