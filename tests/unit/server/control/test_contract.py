"""Training and tuning implement the contract for a kind of job."""

from types import ModuleType

import pytest

from tests.unit.foundation.sample_jobs import NOON, pending
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.tuning import Direction, Objective, StrategyKind, TuningDefinition, TuningJob, TuningPlan
from trainyard.server.control.actions.kind import RuleActionKind
from trainyard.server.control.contract import InstanceSpecMaker, JobKind, JobStorage, JobValue
from trainyard.server.control.lineage.kind import LineageKind
from trainyard.server.control.profiling.kind import ProfileEvaluationKind
from trainyard.server.control.scheduling.contract import SchedulableJobs
from trainyard.server.control.training.demand import SchedulableTrainingJobs
from trainyard.server.control.training.kind import PlacedJob, TrainingJobKind
from trainyard.server.control.training.limits import WaitingLimitKind
from trainyard.server.control.training.specs import SpecMaker
from trainyard.server.control.tuning.kind import DrivenStudy, TuningJobKind
from trainyard.server.jobs import training, tuning
from trainyard.server.records.contract import Claim, Resource, ResourceId

# Checked by mypy: each assignment fails if an implementation no longer has the shape of the contract.
STORAGES: tuple[JobStorage[TrainingJob], JobStorage[TuningJob]] = (training, tuning)
KINDS: tuple[type[JobKind[PlacedJob]], type[JobKind[DrivenStudy]]] = (TrainingJobKind, TuningJobKind)
ONE_STEP_KINDS: tuple[type[JobKind[Claim]], ...] = (
    WaitingLimitKind,
    RuleActionKind,
    ProfileEvaluationKind,
    LineageKind,
)
SCHEDULABLE: type[SchedulableJobs] = SchedulableTrainingJobs
SPEC_MAKER: type[InstanceSpecMaker[TrainingJob]] = SpecMaker


def tuning_job() -> TuningJob:
    objective = Objective("loss", Direction.MINIMIZE)
    plan = TuningPlan(StrategyKind.RANDOM, (TuningDefinition("", objective, ()),), max_parallel=1, max_trials=3)
    return TuningJob("search", "arn:search", "111111111111", "us-east-1", plan, NOON)


@pytest.mark.parametrize(
    ("storage", "job"), [(training, pending()), (tuning, tuning_job())], ids=["training", "tuning"]
)
def test_a_job_survives_its_record_and_is_due_at_once(storage: ModuleType, job: JobValue) -> None:
    draft = storage.draft_of(job, {"Name": job.name}, tags={})
    resource = Resource(ResourceId("id"), draft.key, draft.region, draft.status, NOON, NOON, 1, draft.body)
    assert storage.job_of(resource) == job
    assert (draft.key.kind, draft.status, draft.due_at) == (storage.KIND, job.status, job.created_at)
    assert storage.events_of(job, job) == []
    assert storage.change_to(resource, job).is_quiet
