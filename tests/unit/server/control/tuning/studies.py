"""A tuning job whose controllers a test turns by hand, with agents that it plays itself."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.unit.server.control.bench import Bench, open_bench
from tests.unit.server.services.sagemaker import requests
from trainyard.engines.contract import Capacity
from trainyard.formats.metrics import Point, PointsFile, series_file
from trainyard.foundation.clock import to_micros
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.tuning import TuningJob, TuningTrial
from trainyard.link.contract import FrameKind
from trainyard.server.control.tuning.advisor import ProcessPruner
from trainyard.server.control.tuning.contract import Suggestion
from trainyard.server.control.tuning.study import TuningStudy
from trainyard.server.control.tuning.suggestions import PreparedSuggestion
from trainyard.server.control.tuning.work import TuningWork
from trainyard.server.jobs.training import job_of
from trainyard.server.jobs.tuning import KIND, trial_of, trials_of
from trainyard.server.jobs.tuning import job_of as tuning_job_of
from trainyard.server.records.contract import Claim, Resource, ResourceKey
from trainyard.server.services.sagemaker.tuning.trial_launch import TrainingJobLauncher

METRIC = "loss"
PLENTY = Capacity.of_machine(slots=16, cpus=64.0, memory_bytes=64 * 1024**3)


def tuning_request(bench: Bench, name: str = "search", **changed: Any) -> dict[str, Any]:
    """A tuning job of one definition; members of its configuration may be changed."""
    training = requests.request(bench.anna)
    config = {
        "Strategy": "Bayesian",
        "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": METRIC},
        "ResourceLimits": {"MaxNumberOfTrainingJobs": 4, "MaxParallelTrainingJobs": 2},
        "ParameterRanges": {"ContinuousParameterRanges": [{"Name": "lr", "MinValue": "0.1", "MaxValue": "1"}]},
        "RandomSeed": 7,
    }
    copied = ("RoleArn", "OutputDataConfig", "ResourceConfig", "StoppingCondition", "InputDataConfig")
    definition = {
        **{member: training[member] for member in copied},
        "AlgorithmSpecification": {
            **training["AlgorithmSpecification"],
            "MetricDefinitions": [{"Name": METRIC, "Regex": "loss=(\\S+)"}],
        },
        "StaticHyperParameters": training["HyperParameters"],
    }
    return {
        "HyperParameterTuningJobName": name,
        "HyperParameterTuningJobConfig": config | changed,
        "TrainingJobDefinition": definition,
    }


@dataclass
class Studies:
    bench: Bench
    work: TuningWork

    def create(self, name: str = "search", **changed: Any) -> TuningStudy:
        self.request(name, **changed)
        return self.take(name)

    def request(self, name: str = "search", **changed: Any) -> str:
        """Create a tuning job and leave it to whoever claims it; its id."""
        request = tuning_request(self.bench, name, **changed)
        self.bench.anna.at(self.bench.watch())("sagemaker", "CreateHyperParameterTuningJob", **request)
        return self.resource(name).id

    def resource(self, name: str = "search") -> Resource:
        return self.work.records.load(ResourceKey(self.bench.anna.account, KIND, name))

    def job(self, name: str = "search") -> TuningJob:
        return tuning_job_of(self.resource(name))

    def take(self, name: str = "search") -> TuningStudy:
        study = self.work.claim(self.resource(name).id)
        assert study is not None, "nobody else holds it"
        return study

    def trials(self, name: str = "search") -> list[TuningTrial]:
        return [trial_of(each) for each in trials_of(self.work.records, self.resource(name).id)]

    def training_job(self, number: int = 1, name: str = "search") -> TrainingJob:
        return job_of(self.bench.resource(self.trials(name)[number - 1].job))

    def turn(self, study: TuningStudy, *, lr: str | None = None) -> bool:
        """One round that has heard of everything; with `lr` there is a suggestion of that value."""
        self.bench.watch.forward(0.001)
        if lr is not None:
            study.prepared = PreparedSuggestion(len(study.trials) + 1, study.ended, Suggestion("", {"lr": lr}))
        return self.work.step(study, {study.id, *(trial.job_id for trial in study.trials.values())})

    def begin(self, study: TuningStudy, count: int) -> dict[int, Claim]:
        """So many trials whose programs run, and the claims on their training jobs."""
        claims = {}
        for number in range(len(study.trials) + 1, len(study.trials) + count + 1):
            assert self.turn(study, lr=f"0.{number}")
            claim = self.bench.turn(self.bench.place(), times=2)
            assert claim is not None, "the job goes on"
            claims[number] = claim
        return claims

    def report(self, study: TuningStudy, number: int, *values: float) -> None:
        """Have a trial report its objective: as points, and as a summary."""
        agent = self.bench.agent(study.trials[number].job)
        points = [Point.of(value, to_micros(self.bench.watch())) for value in values]
        PointsFile(series_file(agent.folder.metrics, METRIC)).append(points, durable=False)
        at_us = to_micros(self.bench.watch())
        agent.report(FrameKind.METRIC, name=METRIC, value=values[-1], at_us=at_us, count=len(values))

    def end(self, study: TuningStudy, claim: Claim, *values: float, outcome: str = "completed", **told: Any) -> None:
        """Have the program of a trial end, after it has reported these values."""
        (number,) = (number for number, trial in study.trials.items() if trial.job_id == claim.resource.id)
        if values:
            self.report(study, number, *values)
        self.bench.agent(study.trials[number].job).end(outcome, **told)
        self.bench.turn(claim, times=3)


@contextmanager
def open_studies(folder: Path) -> Iterator[Studies]:
    with open_bench(folder, capacity=PLENTY) as bench, closing(ProcessPruner()) as pruner:
        yield Studies(
            bench,
            TuningWork(
                records=bench.work.records,
                launcher=TrainingJobLauncher(bench.anna.yard),
                pruner=pruner,
                jobs=folder / "jobs",
                clock=bench.watch,
                worker="bench",
                site="",
                wake=lambda _: None,
            ),
        )


def values_of(trials: list[TuningTrial]) -> list[Mapping[str, str]]:
    return [trial.values for trial in trials]
