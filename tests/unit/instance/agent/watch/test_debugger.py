"""The state of rules, their reports, and when a rule stops the program."""

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.unit.instance.agent.samples import changed, open_context
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.instance.agent.layout import ProgramUser, create_layout
from trainyard.instance.agent.watch.debugger import Debugger
from trainyard.instance.rule_evaluation.event_client import EventClient
from trainyard.link.contract import CommandKind, DebuggerSpec, FrameKind, LaunchSpec, RuleSpec, SyncSpec
from trainyard.link.event_protocol import WANTED, AgentEventKind
from trainyard.link.folders import InstanceFolder
from trainyard.link.mailbox import Mailbox
from trainyard.link.spool import SpoolWriter, read_frames

FINDING = {"step": 12, "tensor": "gradient/Net_fc.weight", "message": "It vanished.", "worker": "worker_0"}
STOPS = ({"name": "StopTraining"},)


class Stage:
    """The first of two instances, and its workers."""

    def __init__(self, root: Path, rules: tuple[RuleSpec, ...], *, ranks: int = 1, node: str = "") -> None:
        self.root = root
        self.folder = InstanceFolder(root / "algo-1")
        self.folder.root.mkdir()
        (root / "algo-2").mkdir()
        debugger = DebuggerSpec({}, SyncSpec("s3://yard/tensors", "/opt/ml/output/tensors"), rules)
        launch = LaunchSpec("torchrun", {"algo-1": ranks})
        spec = changed(debugger=debugger, hosts=("algo-1", "algo-2"), launch=launch, node=node)
        create_layout(self.folder, spec, ProgramUser(None))
        self.spool = SpoolWriter(self.folder.spool)
        self.context = open_context(self.folder, spec, self.spool)
        self.debugger = Debugger(self.context, debugger)
        self.workers: dict[str, EventClient] = {}

    def close(self) -> None:
        self.debugger.close()
        self.context.output.close()

    def tell(self, worker: str, rule: str, status: str, **members: Any) -> None:
        teller = self.workers.setdefault(worker, EventClient(str(self.folder.ml)))
        teller.send(AgentEventKind.RULE, {"rule": rule, "status": status, "worker": worker, **members})

    def reported(self) -> list[Mapping[str, Any]]:
        frames = read_frames(self.folder.spool, 0).frames
        return [frame.payload for frame in frames if frame.kind is FrameKind.RULE]

    def statuses(self, rule: str) -> list[str]:
        return [payload["status"] for payload in self.reported() if payload["rule"] == rule]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    rules = (
        RuleSpec("stops", "VanishingGradient", actions=STOPS),
        RuleSpec("saves", "VanishingGradient", actions=({"name": "checkpoint-then-stop"},)),
        RuleSpec("dry", "VanishingGradient", actions=STOPS, is_dry=True),
        RuleSpec("other", "VanishingGradient", actions=({"name": "stoptraining", "training_job_prefix": "cifar"},)),
        RuleSpec("watches", "VanishingGradient"),
    )
    made = Stage(tmp_path, rules)
    yield made
    made.close()
    made.spool.__exit__(None, None, None)


def test_an_issue_that_one_worker_finds_counts_and_stays_found(stage: Stage) -> None:
    stage.tell("worker_0", "watches", "InProgress", judged=3)
    stage.tell("worker_1", "watches", "IssuesFound", details="It vanished.", finding=FINDING, judged=5, dropped=2)
    stage.tell("worker_1", "watches", "NoIssuesFound", judged=9)
    assert stage.debugger.poll(0.0) is None
    stage.debugger.conclude(RuleStatus.NO_ISSUES_FOUND)
    last = stage.reported()[-1]
    assert (last["status"], last["judged"]) == ("IssuesFound", 9)
    assert [payload["finding"] for payload in stage.reported() if payload["finding"]] == [FINDING]


def test_a_program_that_names_ever_new_workers_does_not_fill_the_memory_of_the_agent(stage: Stage) -> None:
    teller = EventClient(str(stage.folder.ml))
    for number in range(3000):
        told = {"rule": "watches", "status": "InProgress", "worker": f"worker_{number}", "judged": number, "dropped": 1}
        teller.send(AgentEventKind.RULE, told)
        teller.send(AgentEventKind.PROGRESS, told)
        stage.debugger.poll(0.0)
    stage.tell("worker_0", "watches", "IssuesFound", details="It vanished.")
    stage.debugger.poll(0.0)
    stage.debugger.conclude(RuleStatus.NO_ISSUES_FOUND)
    last = stage.reported()[-1]
    assert (last["status"], last["judged"], last["dropped"]) == ("IssuesFound", 1023, 1024)


def test_changes_are_reported_once_a_second_but_an_issue_at_once(stage: Stage) -> None:
    stage.tell("worker_0", "watches", "InProgress")
    stage.debugger.poll(10.0)
    stage.tell("worker_0", "watches", "InProgress", details="9 steps were dropped.")
    stage.debugger.poll(10.1)
    assert stage.statuses("watches") == ["InProgress"]
    stage.tell("worker_0", "watches", "IssuesFound", finding=FINDING)
    stage.debugger.poll(10.2)
    assert stage.statuses("watches") == ["InProgress", "IssuesFound"]
    for number in range(100):
        stage.tell("worker_0", "watches", "IssuesFound", finding={**FINDING, "step": number})
    stage.debugger.poll(10.3)
    stage.debugger.poll(11.3)
    assert len(stage.reported()) == 3


def test_the_number_of_evaluated_steps_is_reported_while_the_rule_finds_nothing(stage: Stage) -> None:
    stage.tell("worker_0", "watches", "InProgress", judged=1)
    stage.debugger.poll(0.0)
    reported_at = []
    for second in range(1, 601):
        stage.tell("worker_0", "watches", "InProgress", judged=1 + second)
        before = len(stage.reported())
        stage.debugger.poll(float(second))
        if len(stage.reported()) > before:
            reported_at.append(second)
            assert stage.reported()[-1]["judged"] == 1 + second
    assert reported_at[:3] == [2, 5, 10]
    # At first every few seconds, later once a minute, because all of them are kept.
    assert max(after - before for before, after in pairwise(reported_at)) == 60
    told = len(stage.reported())
    stage.debugger.poll(10_000.0)
    assert len(stage.reported()) == told + 1
    stage.debugger.poll(20_000.0)
    assert len(stage.reported()) == told + 1


def test_a_stop_names_rule_step_and_tensor_and_reaches_the_siblings(stage: Stage) -> None:
    stage.tell("worker_0", "stops", "IssuesFound", finding=FINDING)
    reason = stage.debugger.poll(1.0)
    assert reason == stage.debugger.stop_reason
    assert reason == (
        'The rule "stops" found an issue at step 12 in gradient/Net_fc.weight and stopped the training: It vanished.'
    )
    (command,) = Mailbox(stage.root / "algo-2" / "mailbox").read(0)
    assert (command.kind, command.payload) == (CommandKind.STOP, {"reason": reason})


def test_when_several_ranks_find_the_same_the_rank_where_it_began_is_named(tmp_path: Path) -> None:
    stage = Stage(tmp_path, (RuleSpec("stops", "NotANumber", actions=STOPS),), ranks=2)
    stage.tell("worker_0", "stops", "IssuesFound", finding={**FINDING, "message": "It came from another rank."})
    assert stage.debugger.poll(1.0) is None
    stage.tell("worker_1", "stops", "IssuesFound", finding={**FINDING, "tensor": "Net_output_0", "message": "Here."})
    stage.tell("worker_0", "stops", "IssuesFound", judged=13)  # nothing new
    assert stage.debugger.poll(1.1) is None
    reason = stage.debugger.poll(1.5)
    assert reason == 'The rule "stops" found an issue at step 12 in Net_output_0 and stopped the training: Here.'
    stage.close()


def test_rules_that_are_dry_or_ask_for_no_stop_of_this_job_stop_nothing(stage: Stage) -> None:
    stage.tell("worker_0", "watches", "IssuesFound", finding=FINDING)
    stage.tell("worker_0", "other", "IssuesFound", finding=FINDING)
    stage.tell("worker_0", "dry", "IssuesFound", finding=FINDING)
    assert stage.debugger.poll(1.0) is None
    assert stage.debugger.poll(100.0) is None


def test_a_stop_after_a_checkpoint_waits_for_it(stage: Stage) -> None:
    stage.tell("worker_0", "saves", "IssuesFound", finding=FINDING)
    assert stage.debugger.poll(1.0) is None
    assert json.loads((stage.folder.ml / WANTED).read_text())["checkpoint"] == 12
    stage.workers["worker_0"].send(AgentEventKind.SAVED, {"path": "/opt/ml/checkpoints/trainyard-step-13.pt"})
    assert stage.debugger.poll(2.0) is not None


def test_on_a_node_the_yard_is_asked_to_stop_all_instances_and_gets_a_moment_for_it(tmp_path: Path) -> None:
    rule = RuleSpec("saves", "VanishingGradient", actions=({"name": "checkpoint-then-stop"},))
    stage = Stage(tmp_path, (rule,), node="node-1")
    stage.tell("worker_0", "saves", "IssuesFound", finding=FINDING)
    stage.debugger.poll(1.0)
    assert not any(payload.get("stops") for payload in stage.reported())
    stage.workers["worker_0"].send(AgentEventKind.SAVED, {"path": "/opt/ml/checkpoints/trainyard-step-13.pt"})

    assert stage.debugger.poll(2.0) is None
    assert (stage.reported()[-1]["rule"], stage.reported()[-1]["stops"]) == ("saves", True)
    assert stage.debugger.poll(3.9) is None
    assert stage.debugger.poll(4.0) is not None
    assert not (stage.root / "algo-2" / "mailbox").exists()
    stage.close()


def test_a_checkpoint_that_does_not_come_delays_the_stop_for_a_limited_time(stage: Stage) -> None:
    stage.tell("worker_0", "saves", "IssuesFound", finding=FINDING)
    assert stage.debugger.poll(1.0) is None
    assert stage.debugger.poll(30.9) is None
    assert stage.debugger.poll(31.0) is not None


def test_rules_end_as_the_program_did(stage: Stage) -> None:
    stage.tell("worker_0", "watches", "InProgress")
    stage.tell("worker_0", "dry", "NoIssuesFound")
    stage.tell("worker_0", "saves", "Error", details="KeyError: 'x'")
    stage.debugger.poll(1.0)
    stage.debugger.conclude(RuleStatus.STOPPED)
    assert stage.statuses("watches")[-1] == stage.statuses("dry")[-1] == "Stopped"
    assert stage.statuses("saves")[-1] == "Error"
    assert stage.statuses("stops") == []  # nothing has evaluated it


def test_rules_whose_process_failed_are_errors(stage: Stage) -> None:
    stage.tell("judge", "watches", "InProgress")
    stage.debugger.poll(1.0)
    stage.debugger.fail(["watches"], "Its process was killed by signal 9.")
    stage.debugger.conclude(RuleStatus.NO_ISSUES_FOUND)
    assert (stage.reported()[-1]["status"], stage.reported()[-1]["details"]) == (
        "Error",
        "Its process was killed by signal 9.",
    )


def test_invalid_events_change_nothing(stage: Stage) -> None:
    stage.tell("worker_0", "no such rule", "IssuesFound", finding=FINDING)
    stage.tell("worker_0", "stops", "Stopping")
    stage.tell("worker_0", "stops", ["IssuesFound"])  # type: ignore[arg-type]
    stage.tell("worker_0", "watches", "IssuesFound", finding={"message": "x" * 100_000, "step": "y"}, judged=-1)
    stage.debugger.poll(1.0)
    stage.debugger.conclude(RuleStatus.NO_ISSUES_FOUND)
    assert {payload["rule"] for payload in stage.reported()} == {"watches"}
    assert len(json.dumps(stage.reported())) < 300_000


def test_the_end_of_the_program_is_marked_where_tensors_are_read(stage: Stage) -> None:
    (stage.folder.ml / "output/tensors").mkdir()
    stage.debugger.mark_end()
    from trainyard.formats.tensors.recordings.layout import ENDED

    assert json.loads((stage.folder.ml / "output/tensors" / ENDED).read_text())["at_us"] > 0
