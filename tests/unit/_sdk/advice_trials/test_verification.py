"""Trials run in turns, on requests that repeat the job, and only changes that were made count."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from trainyard._sdk.advice_trials.trial_runs import read_trial_steps
from trainyard._sdk.advice_trials.verification import TrialPlan, Verification, verify_changes
from trainyard.formats.profiles.contract import CHANGES_VARIABLE, STEPS_VARIABLE, TRIAL_TAG, ProgramChange
from trainyard.foundation.errors import InvalidRequest, Unavailable

WORKERS = {ProgramChange.LOADER_WORKERS: "2"}
BATCH = {ProgramChange.BATCH_SIZE: "256"}
JOB = {
    "TrainingJobName": "digits",
    "TrainingJobStatus": "Completed",
    "AlgorithmSpecification": {"TrainingImage": "pytorch-training:2.8", "TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::111122223333:role/trainer",
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "KeepAlivePeriodInSeconds": 60},
    "HyperParameters": {"sagemaker_job_name": '"digits"', "lr": "0.1"},
    "Environment": {"SEED": "3"},
    "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
    "CheckpointConfig": {"S3Uri": "s3://bucket/checkpoints"},
    "DebugHookConfig": {"S3OutputPath": "s3://bucket/tensors"},
    "EnableManagedSpotTraining": True,
}


@dataclass
class Yard:
    """Simulates a yard on which every trial ends at once. Steps take 0.1 s, and less with a change."""

    step_s: Mapping[str, float] = field(default_factory=lambda: {"": 0.1, "loader_workers": 0.05, "batch_size": 0.15})
    ignored: frozenset[str] = frozenset()
    failing: frozenset[str] = frozenset()
    samples: Mapping[str, float] = field(default_factory=lambda: {"": 64.0, "batch_size": 256.0})
    is_cut: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)

    def call(self, service: str, operation: str, **params: Any) -> dict[str, Any]:
        if operation == "CreateTrainingJob":
            self.requests.append(params)
        if operation == "DescribeJob":
            return {"Engine": "local", "Attempts": [], "Artifacts": []}
        if operation == "DescribeTrainingJob":
            changes = self.changes_of(params["TrainingJobName"])
            status = "Failed" if self.failing & {*changes, *([] if changes else ["unchanged"])} else "Completed"
            failure = {"FailureReason": "AlgorithmError: it broke"} if status == "Failed" else {}
            return {"TrainingJobStatus": status, **failure}
        return {}

    @contextlib.contextmanager
    def stream(self, service: str, operation: str, **params: Any) -> Iterator[Iterator[bytes]]:
        lines = [{"kind": "ended", "status": "Completed", "cursor": "1"}]
        if operation == "ReadSteps":
            lines = list(self.steps(params["TrainingJobName"]))
        yield (json.dumps(line).encode() for line in lines)

    def changes_of(self, name: str) -> dict[str, str]:
        request = next(each for each in self.requests if each["TrainingJobName"] == name)
        return dict(json.loads(request["Environment"].get(CHANGES_VARIABLE, "{}")))

    def steps(self, name: str) -> Iterator[dict[str, Any]]:
        changes = self.changes_of(name)
        kind = next(iter(changes), "")
        step_us = round(self.step_s[kind] * 1e6)
        # The first five steps are slow, as they start the workers.
        ends = [5_000_000 * number for number in range(1, 6)]
        ends += [ends[-1] + step_us * number for number in range(1, 21)]
        for rank in (10, 2):
            worker = {"instance": "algo-1", "attempt": 1, "worker": f"worker_{rank}"}
            times = [end + rank * 1000 for end in ends]
            modes = ["TRAIN"] * len(ends)
            yield {**worker, "counts": [1] * len(ends), "modes": modes, "ended_us": times}
            made = {name: value for name, value in changes.items() if name not in self.ignored}
            samples = self.samples.get(kind, self.samples.get("", 0))
            yield {**worker, "facts": {"samples_per_step": samples, "changes": made}}
        if not self.is_cut:
            yield {}


def verify(yard: Yard, *candidates: Mapping[ProgramChange, str], rounds: int = 2) -> Verification:
    plan = TrialPlan(rounds, 100)
    return verify_changes(yard, JOB, candidates, bucket="bucket", plan=plan, report=lambda _: None)


def test_a_trial_repeats_the_job_for_some_steps_and_leaves_its_data_alone() -> None:
    yard = Yard()
    verify(yard, WORKERS, rounds=1)
    unchanged, changed = yard.requests
    assert unchanged["Environment"] == {"SEED": "3", STEPS_VARIABLE: "100"}
    assert json.loads(changed["Environment"][CHANGES_VARIABLE]) == {"loader_workers": "2"}
    assert changed["HyperParameters"] == {"sagemaker_job_name": json.dumps(changed["TrainingJobName"]), "lr": "0.1"}
    assert changed["ResourceConfig"] == {"InstanceType": "ml.m5.large", "InstanceCount": 1}
    name = changed["TrainingJobName"]
    assert changed["OutputDataConfig"] == {"S3OutputPath": f"s3://bucket/trainyard-trials/{name}/"}
    assert changed["StoppingCondition"]["MaxRuntimeInSeconds"] < 3600
    assert {"Key": TRIAL_TAG, "Value": "digits"} in changed["Tags"]
    assert {"CheckpointConfig", "DebugHookConfig", "EnableManagedSpotTraining"}.isdisjoint(changed)


def test_the_gain_is_measured_after_the_warm_up_in_turns_that_change() -> None:
    yard = Yard()
    found = verify(yard, WORKERS, BATCH)
    assert [next(iter(yard.changes_of(job)), "") for job in found.jobs] == [
        *("", "loader_workers", "batch_size"),
        *("batch_size", "loader_workers", ""),
    ]
    workers, batch = found.results
    assert workers.speedup is not None
    assert workers.speedup.factor == pytest.approx(2.0)
    # A step with four times as many samples takes half as long again.
    assert batch.is_per_sample
    assert batch.speedup is not None
    assert batch.speedup.factor == pytest.approx(4 / 1.5)


def test_a_change_that_was_not_made_has_no_gain() -> None:
    (result,) = verify(Yard(ignored=frozenset({"loader_workers"})), WORKERS).results
    assert result.speedup is None
    assert result.problem == "the program did not take over the change of loader workers"


def test_a_change_that_breaks_the_program_is_tried_once_and_its_failure_told() -> None:
    yard = Yard(failing=frozenset({"loader_workers"}))
    found = verify(yard, WORKERS, rounds=3)
    assert len(found.jobs) == 4
    assert found.results[0].problem.endswith("is Failed: AlgorithmError: it broke")


def test_a_job_that_cannot_be_repeated_ends_the_verification() -> None:
    yard = Yard(failing=frozenset({"unchanged"}))
    with pytest.raises(InvalidRequest, match=r"cannot be repeated for a trial: the trial .* is Failed"):
        verify(yard, WORKERS)
    assert len(yard.requests) == 1


def test_batch_sizes_are_compared_only_where_the_samples_are_known() -> None:
    (result,) = verify(Yard(samples={}), BATCH).results
    assert result.speedup is None
    assert "how many samples a step has" in result.problem


def test_the_first_rank_counts() -> None:
    yard = Yard(requests=[{"TrainingJobName": "trial", "Environment": {}}])
    steps = read_trial_steps(yard, "trial")
    assert steps.steps == 20
    assert steps.step_s == pytest.approx(0.1)


def test_a_yard_that_breaks_off_is_no_result() -> None:
    yard = Yard(requests=[{"TrainingJobName": "trial", "Environment": {}}], is_cut=True)
    with pytest.raises(Unavailable):
        read_trial_steps(yard, "trial")


@pytest.mark.parametrize(("step_s", "steps"), [(0.01, 1000), (1.0, 30), (0.0001, 5000), (None, 30)])
def test_trials_have_enough_steps_to_tell_and_no_more(step_s: float | None, steps: int) -> None:
    assert TrialPlan.of(step_s, trial_s=10).steps == steps
