"""Many short trials of one tuning job on two slots, compared with `xargs -P2 python` of the same script and values.

    python -m benchmarks.tuning_throughput [--trials N] [--bare-trials N] [--epochs N] [--strategy NAME] [--rounds N]

A slot is busy from the placement of a trial until its end. The time between two trials is what the yard needs to notice
the end, to choose and store another trial, and to create and place its training job. The total is from the create call
to the final status of the tuning job. Bare runs start an interpreter and import everything each time; all trials but
the first are forked from a warm worker. If fewer are run bare, the time per trial is compared.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measurement import write_results
from benchmarks.yard_jobs import BUCKET, IMAGE, SCRIPTS, Jobs, open_jobs

SCRIPT = SCRIPTS / "tuned.py"
SLOTS = 2
METRIC = "loss"
WARM = "The program was started warm"

GOAL_BUSY = 0.9
# As a multiple of the time of the bare runs.
GOAL_TOTAL = 1.0


@dataclass(frozen=True, slots=True)
class Study:
    """The times of a tuning job. `busy` and `training` are fractions of the time of all slots."""

    seconds: float
    busy: float
    training: float
    # The median, from placement to end.
    trial_s: float
    warm: int  # trials


def main() -> None:
    arguments = _arguments()
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        settings = {"slots": str(SLOTS)}
        with open_jobs(Path(folder) / "home", python=Path(sys.executable), settings=settings) as jobs:
            for number in range(1, arguments.rounds + 1):
                print(f"round {number} of {arguments.rounds}", flush=True)
                name = f"throughput-{number}"
                study = _study(jobs, name, arguments)
                values = [each["TunedHyperParameters"] for each in _trials(jobs, name)][: arguments.bare_trials]
                bare_s = _bare(Path(folder) / name, values, epochs=arguments.epochs) / len(values) if values else None
                rounds.append({"study": asdict(study), "seconds for a bare trial": bare_s})
    _print(rounds, trials=arguments.trials)
    print(f"\nEvery round is in {write_results('tuning_throughput', {**vars(arguments), 'rounds': rounds})}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure how busy a tuning job keeps two slots.")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--bare-trials", type=int, help="trials for xargs -P2, all by default; 0 skips them")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--strategy", default="Bayesian", choices=["Bayesian", "Random"])
    parser.add_argument("--rounds", type=int, default=1)
    return parser.parse_args()


def _study(jobs: Jobs, name: str, arguments: argparse.Namespace) -> Study:
    code = jobs.upload(SCRIPT)
    begun = time.perf_counter()
    jobs.client.call("sagemaker", "CreateHyperParameterTuningJob", **_request(jobs, name, code, arguments=arguments))
    while (told := _describe(jobs, name))["HyperParameterTuningJobStatus"] == "InProgress":
        time.sleep(0.2)
    seconds = time.perf_counter() - begun
    assert told["TrainingJobStatusCounters"]["Completed"] == arguments.trials, told
    names = [each["TrainingJobName"] for each in _trials(jobs, name)]
    described = [jobs.describe(each) for each in names]
    placed = [_stretch(each, "Starting") for each in described]
    trained = [_stretch(each, "Training", until="Uploading") for each in described]
    return Study(
        seconds=seconds,
        busy=_share(placed),
        training=_share(trained, within=placed),
        trial_s=median((end - start).total_seconds() for start, end in placed),
        warm=sum(_is_warm(jobs, each) for each in names),
    )


def _is_warm(jobs: Jobs, name: str) -> bool:
    told = jobs.client.call("trainyard", "DescribeJob", TrainingJobName=name)
    return any(note.startswith(WARM) for note in told.get("Notes", ()))


def _request(jobs: Jobs, name: str, code: str, *, arguments: argparse.Namespace) -> dict[str, Any]:
    known = jobs.yard.credentials
    return {
        "HyperParameterTuningJobName": name,
        "HyperParameterTuningJobConfig": {
            "Strategy": arguments.strategy,
            "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": METRIC},
            "ResourceLimits": {"MaxNumberOfTrainingJobs": arguments.trials, "MaxParallelTrainingJobs": SLOTS},
            "ParameterRanges": {
                "ContinuousParameterRanges": [
                    {"Name": "lr", "MinValue": "0.0001", "MaxValue": "0.1", "ScalingType": "Logarithmic"}
                ],
                "IntegerParameterRanges": [{"Name": "hidden", "MinValue": "8", "MaxValue": "64"}],
            },
            "RandomSeed": 1,
        },
        "TrainingJobDefinition": {
            "RoleArn": f"arn:aws:iam::{known.account}:role/{known.role}",
            "AlgorithmSpecification": {
                "TrainingImage": IMAGE,
                "TrainingInputMode": "File",
                "MetricDefinitions": [{"Name": METRIC, "Regex": "loss=([0-9.]+);"}],
            },
            "StaticHyperParameters": {
                "sagemaker_program": f'"{SCRIPT.name}"',
                "sagemaker_submit_directory": f'"{code}"',
                "epochs": str(arguments.epochs),
            },
            "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        },
    }


def _describe(jobs: Jobs, name: str) -> dict[str, Any]:
    return jobs.client.call("sagemaker", "DescribeHyperParameterTuningJob", HyperParameterTuningJobName=name)


def _trials(jobs: Jobs, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    token: dict[str, Any] = {}
    while True:
        asked = {"HyperParameterTuningJobName": name, "MaxResults": 100, "SortBy": "Name", **token}
        page = jobs.client.call("sagemaker", "ListTrainingJobsForHyperParameterTuningJob", **asked)
        found += page["TrainingJobSummaries"]
        if not page.get("NextToken"):
            return found
        token = {"NextToken": page["NextToken"]}


def _stretch(described: Mapping[str, Any], status: str, *, until: str = "") -> tuple[datetime, datetime]:
    """Return the time from the first of one status to the first of another, or to the end of the job."""
    steps = described["SecondaryStatusTransitions"]
    start = next(step["StartTime"] for step in steps if step["Status"] == status)
    return start, next((step["StartTime"] for step in steps if step["Status"] == until), steps[-1]["StartTime"])


def _share(
    stretches: Sequence[tuple[datetime, datetime]], *, within: Sequence[tuple[datetime, datetime]] | None = None
) -> float:
    """Return the fraction that stretches are of the time of all slots, from the first start to the last end."""
    span = within or stretches
    whole = (max(end for _, end in span) - min(start for start, _ in span)).total_seconds()
    return sum((end - start).total_seconds() for start, end in stretches) / (SLOTS * whole)


def _bare(folder: Path, values: Sequence[Mapping[str, str]], *, epochs: int) -> float:
    """Return the seconds of the same trainings, each in its own folder, because each leaves a model."""
    folder.mkdir()
    lines = [" ".join([str(number), *_options(each), "--epochs", str(epochs)]) for number, each in enumerate(values)]
    script = f'mkdir "run-$1" && cd "run-$1" && shift && exec "{sys.executable}" "{SCRIPT}" "$@"'
    begun = time.perf_counter()
    subprocess.run(
        ["xargs", f"-P{SLOTS}", "-L1", "sh", "-c", script, "sh"],
        input="\n".join(lines),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return time.perf_counter() - begun


def _options(values: Mapping[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in (f"--{name}", value)]


def _print(rounds: Sequence[Mapping[str, Any]], *, trials: int) -> None:
    studies = [Study(**each["study"]) for each in rounds]
    busy, seconds = median(each.busy for each in studies), median(each.seconds for each in studies)
    print(f"\n{f'{trials} trials on {SLOTS} slots':40}{'measured':>12}{'goal':>8}")
    print(f"{'slots busy':40}{busy:>12.1%}{GOAL_BUSY:>8.0%}{'' if busy >= GOAL_BUSY else '   missed'}")
    print(f"{'programs running':40}{median(each.training for each in studies):>12.1%}")
    print(f"{'a trial, s':40}{median(each.trial_s for each in studies):>12.2f}")
    print(f"{'trials that were started warm':40}{median(each.warm for each in studies):>12.0f}")
    print(f"{'tuning job, s':40}{seconds:>12.1f}")
    bare = [each["seconds for a bare trial"] for each in rounds]
    if None not in bare:
        ratio = seconds / trials / median(bare)
        print(f"{'the same by xargs -P2 python, s':40}{median(bare) * trials:>12.1f}")
        print(f"{'of that':40}{ratio:>12.2f}{GOAL_TOTAL:>8.0f}{'' if ratio <= GOAL_TOTAL else '   missed'}")


if __name__ == "__main__":
    main()
