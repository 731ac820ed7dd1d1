"""Training, processing and tuning implement the contract for a kind of job."""

from types import ModuleType

import pytest

from tests.unit.foundation.sample_jobs import NOON, pending
from trainyard.foundation.jobs.processing.job import ProcessingJob
from trainyard.foundation.jobs.processing.plan import OutputPlan, ProcessingPlan
from trainyard.foundation.jobs.processing.statuses import MESSAGES
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.transitions import first_transition
from trainyard.foundation.jobs.tuning import Direction, Objective, StrategyKind, TuningDefinition, TuningJob, TuningPlan
from trainyard.server.control.actions.kind import RuleActionKind
from trainyard.server.control.contract import InstanceSpecMaker, JobKind, JobStorage, JobValue
from trainyard.server.control.instances.demand import SchedulableInstanceJobs
from trainyard.server.control.instances.kind import InstanceJobKind, JobWork, PlacedJob
from trainyard.server.control.lineage.kind import LineageKind
from trainyard.server.control.processing.specs import ProcessingSpecMaker
from trainyard.server.control.processing.work import ProcessingWork
from trainyard.server.control.profiling.kind import ProfileEvaluationKind
from trainyard.server.control.scheduling.contract import SchedulableJobs
from trainyard.server.control.training.limits import WaitingLimitKind
from trainyard.server.control.training.specs import SpecMaker
from trainyard.server.control.training.work import TrainingWork
from trainyard.server.control.tuning.kind import DrivenStudy, TuningJobKind
from trainyard.server.jobs import processing, training, tuning
from trainyard.server.records.contract import Claim, Resource, ResourceId

# Checked by mypy: each assignment fails if an implementation no longer has the shape of the contract.
STORAGES: tuple[JobStorage[TrainingJob], JobStorage[ProcessingJob], JobStorage[TuningJob]] = (
    training,
    processing,
    tuning,
)
KINDS: tuple[type[JobKind[PlacedJob]], type[JobKind[DrivenStudy]]] = (InstanceJobKind, TuningJobKind)
ONE_STEP_KINDS: tuple[type[JobKind[Claim]], ...] = (
    WaitingLimitKind,
    RuleActionKind,
    ProfileEvaluationKind,
    LineageKind,
)
SCHEDULABLE: type[SchedulableJobs] = SchedulableInstanceJobs[TrainingJob]
SPEC_MAKER: type[InstanceSpecMaker[TrainingJob]] = SpecMaker
PROCESSING_SPEC_MAKER: type[InstanceSpecMaker[ProcessingJob]] = ProcessingSpecMaker
WORKS: tuple[type[JobWork], ...] = (TrainingWork, ProcessingWork)


def processing_job() -> ProcessingJob:
    plan = ProcessingPlan("image", "ml.m5.large", 1, role="Role", outputs=(OutputPlan("out", "s3://data/out", "/out"),))
    history = (first_transition(MESSAGES, NOON),)
    return ProcessingJob("clean", "arn:clean", "111111111111", "us-east-1", plan, NOON, history)


def tuning_job() -> TuningJob:
    objective = Objective("loss", Direction.MINIMIZE)
    plan = TuningPlan(StrategyKind.RANDOM, (TuningDefinition("", objective, ()),), max_parallel=1, max_trials=3)
    return TuningJob("search", "arn:search", "111111111111", "us-east-1", plan, NOON)


@pytest.mark.parametrize(
    ("storage", "job"),
    [(training, pending()), (processing, processing_job()), (tuning, tuning_job())],
    ids=["training", "processing", "tuning"],
)
def test_a_job_survives_its_record_and_is_due_at_once(storage: ModuleType, job: JobValue) -> None:
    draft = storage.draft_of(job, {"Name": job.name}, tags={})
    resource = Resource(ResourceId("id"), draft.key, draft.region, draft.status, NOON, NOON, 1, draft.body)
    assert storage.job_of(resource) == job
    assert (draft.key.kind, draft.status, draft.due_at) == (storage.KIND, job.status, job.created_at)
    assert storage.events_of(job, job) == []
    assert storage.change_to(resource, job).is_quiet
