"""Profiles of simulated jobs: the files that agents leave, and the evaluation without a process of its own."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.unit.server.control.bench import Bench
from tests.unit.server.services.accounts import As
from tests.unit.server.services.sagemaker.requests import describe
from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries
from trainyard.formats.profiles.hardware_writer import HardwareWriter
from trainyard.formats.profiles.step_times import HEADER, SUFFIX, StepRow, encode_row
from trainyard.foundation.clock import to_micros
from trainyard.foundation.locations import BucketRef, Location
from trainyard.link.folders import InstanceFolder
from trainyard.server.control.profiling import evaluation_process
from trainyard.server.control.profiling.conclusions import ProfileConclusions
from trainyard.server.control.profiling.kind import FIRST_AFTER, ProfileEvaluationKind
from trainyard.server.control.profiling.report_storage import ReportStorage
from trainyard.server.control.worker_process import Message, WorkerProcess
from trainyard.server.jobs.profile_evaluations import KIND
from trainyard.server.records.contract import Claim, Query

RULES_IMAGE = "503895931360.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rules:latest"
CPU = HardwareSeries(HardwareMetric.CPU_PERCENT, "total")
STEP_US = 400_000
# A step waits for data in three quarters of its time.
WAITING_NS = (300_000_000, 0, 40_000_000, 50_000_000, 10_000_000, 0, 0, 0)
COMPUTING_NS = (0, 0, 200_000_000, 150_000_000, 50_000_000, 0, 0, 0)


def rule(name: str, rule: str, **parameters: str) -> dict[str, Any]:
    return {
        "RuleConfigurationName": name,
        "RuleEvaluatorImage": RULES_IMAGE,
        "RuleParameters": {"rule_to_invoke": rule, **parameters},
    }


def waiting_rule(name: str = "io", **parameters: str) -> dict[str, Any]:
    """A rule that fires for `WAITING_NS`, however short the training is."""
    return rule(name, "CPUBottleneck", patience_s="0", **parameters)


def write_profile(
    folder: InstanceFolder,
    start_us: int,
    *,
    steps: int = 300,
    phases_ns: Sequence[int] = WAITING_NS,
) -> None:
    """Write what an agent keeps of a training on one worker, with a sample of the hardware each second."""
    step_us = sum(phases_ns) // 1000
    with HardwareWriter(folder.hardware) as writer:
        writer.begin([CPU], 1_000_000)
        for second in range(max(1, steps * step_us // 1_000_000)):
            writer.append(start_us + second * 1_000_000, [90.0])
    folder.steps.mkdir(parents=True, exist_ok=True)
    rows = [
        StepRow(number, 1, "TRAIN", start_us + number * step_us, start_us + (number + 1) * step_us, phases_ns)
        for number in range(steps)
    ]
    (folder.steps / f"worker_0{SUFFIX}").write_bytes(HEADER + b"".join(map(encode_row, rows)))


class EvaluationHere(WorkerProcess):
    """Evaluates in the process of the test, which takes milliseconds, unless it has failures to raise first."""

    def __init__(self) -> None:
        super().__init__((), role="evaluation")
        self.questions: list[Message] = []
        self.failures: list[Exception] = []

    def begin(self) -> None:
        """Nothing needs to be started."""

    def ask(self, line: Message, limit: timedelta) -> Message:
        self.questions.append(line)
        if self.failures:
            raise self.failures.pop(0)
        return evaluation_process.answer(line)


class Profiled:
    """A bench with profiles and their evaluations."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.process = EvaluationHere()
        self.woken: list[str] = []
        self.kind = self.new_kind("bench")

    def new_kind(self, worker: str) -> ProfileEvaluationKind:
        """Return the evaluations of a yard that has just started."""
        work, objects = self.bench.work, self.bench.anna.yard.objects
        jobs = self.bench.anna.yard.compute.jobs
        conclusions = ProfileConclusions(
            work.records, objects, work.catalog, jobs, self.bench.watch, process=self.process
        )
        kind = ProfileEvaluationKind(
            work.records, conclusions, ReportStorage(objects), self.bench.watch, worker, wake=self.woken.append
        )
        kind.open(lambda *_: None)
        return kind

    @property
    def anna(self) -> As:
        """The user, on a yard that answers what profiles mean."""
        anna = self.bench.anna
        return replace(anna, yard=replace(anna.yard, conclusions=self.kind.conclusions), now=self.bench.watch())

    def start(self, *rules: dict[str, Any], name: str = "mnist", **changed: Any) -> Claim:
        """Start a job whose training has been profiled for a while."""
        claim = self.bench.start(name, ProfilerRuleConfigurations=list(rules), **changed)
        self.write(name=name)
        return claim

    def write(self, *, name: str = "mnist", **changed: Any) -> None:
        write_profile(self.bench.agent(name).folder, to_micros(self.bench.watch()), **changed)

    def evaluate(self) -> int:
        """Take the step of each evaluation that is due, and return how many questions that took."""
        asked = len(self.process.questions)
        for claim in self.kind.claim_due():
            self.kind.step(claim, ())
        return len(self.process.questions) - asked

    def evaluate_first(self) -> int:
        """Let time pass until the first evaluation of a running job."""
        self.bench.watch.forward(2)
        self.evaluate()
        self.bench.watch.forward(FIRST_AFTER.total_seconds())
        return self.evaluate()

    def end(self, claim: Claim, name: str = "mnist") -> None:
        self.bench.agent(name).end()
        self.turn(claim)

    def turn(self, claim: Claim) -> None:
        """Let the yard take some steps with the job, of which the lease may have expired meanwhile."""
        self.bench.turn(self.bench.work.claim() or claim, times=3)

    def statuses(self, name: str = "mnist") -> dict[str, str]:
        told = describe(self.bench.anna, name)["ProfilerRuleEvaluationStatuses"]
        return {each["RuleConfigurationName"]: each["RuleEvaluationStatus"] for each in told}

    @property
    def waiting(self) -> int:
        """How many jobs will be evaluated."""
        return len(self.bench.work.records.find(Query(KIND)).resources)

    def stored(self, prefix: str = "output/") -> list[str]:
        bucket = BucketRef(self.bench.anna.account, "data")
        return [each.key for each in self.bench.anna.yard.objects.list_objects(bucket, prefix=prefix).objects]

    def read(self, key: str) -> bytes:
        where = Location(BucketRef(self.bench.anna.account, "data"), key)
        with self.bench.anna.yard.objects.open(where) as reader:
            return reader.read(0, reader.info.size)
