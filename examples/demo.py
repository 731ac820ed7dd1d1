"""A minute with a yard: train a network on it twice, look at it with the aws CLI, see a job fail, keep the model.

Run it with `make demo`.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import sklearn.datasets

from tests.conformance.environments import interpreter

REPOSITORY = Path(__file__).parents[1]
RESULTS = "build/demo"
DIGITS = f"{RESULTS}/digits.csv.gz"
TRAINING = ("trainyard", "run", "examples/train_digits.py", "-i", DIGITS)
METRICS = ("--md", "loss", "loss=([0-9.]+)", "--md", "accuracy", "accuracy=([0-9.]+)")


@dataclass
class Tour:
    """Types commands in the repository and shows what they say, while they say it."""

    aws: tuple[str, ...]  # not just the script, whose first line breaks where the path to Python has a space in it
    variables: Mapping[str, str]

    def show(self, *command: str, ends_with: int = 0) -> float:
        """Run a command and return how many seconds it took; another exit status than the expected ends the tour."""
        print(f"  $ {shlex.join(command)}", flush=True)
        started = time.monotonic()
        with subprocess.Popen(
            self._program(*command),
            cwd=REPOSITORY,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None, "it is a pipe"
            for line in process.stdout:
                print(f"    {line}", end="", flush=True)
        if process.returncode != ends_with:
            sys.exit(f"This was not to be expected: exit status {process.returncode}.")
        return time.monotonic() - started

    def said(self, *command: str) -> str:
        """What a command prints, taken without showing it."""
        run = subprocess.run(self._program(*command), env=self.variables, stdout=subprocess.PIPE, text=True, check=True)
        return run.stdout

    def enter(self) -> None:
        """Lay the variables of `trainyard env` over those there are, as eval "$(trainyard env)" does in a shell."""
        laid = json.loads(self.said("trainyard", "env", "--json"))
        kept = {name: value for name, value in self.variables.items() if name not in laid["unset"]}
        self.variables = kept | laid["variables"]

    def _program(self, name: str, *words: str) -> list[str]:
        program = self.aws if name == "aws" else (sys.executable, str(Path(sys.executable).with_name(name)))
        return [*program, *words]


def main() -> None:
    python = interpreter("demo")
    bring_digits()
    with tempfile.TemporaryDirectory(prefix="trainyard-demo-") as home:
        tour = Tour((str(python), str(python.with_name("aws"))), {**os.environ, "TRAINYARD_HOME": home})
        tell("A training service on this machine: no AWS account, no container engine, nothing to configure.")
        tour.show("trainyard", "up", "--detach", "--port", "0")
        try:
            tour.enter()
            look_around(tour)
        finally:
            tour.said("trainyard", "down")  # before any word that nobody may be there to read
    tell("The yard is stopped again, and its home folder removed. One of your own: trainyard up --detach")
    tell(f"The model stays: {RESULTS}/model/model.tar.gz")


def bring_digits() -> None:
    (REPOSITORY / RESULTS).mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(sklearn.datasets.__file__).parent / "data" / "digits.csv.gz", REPOSITORY / DIGITS)


def look_around(tour: Tour) -> None:
    tell("A script becomes a job in a sandbox: its data comes in, its lines and metrics come out live.")
    training = (*TRAINING, "-o", RESULTS, *METRICS, "--", "--epochs", "6")
    first_s = tour.show(*training)
    tour.show("trainyard", "metrics", "@last")
    tell("To AWS clients it is SageMaker. The aws CLI, told where the yard is by the variables of `trainyard env`:")
    name = json.loads(tour.said("trainyard", "describe", "@last", "--json"))["TrainingJobName"]
    text = ("--output", "text", "--query")
    tour.show(
        "aws", "sagemaker", "list-training-jobs", *text, "TrainingJobSummaries[].[TrainingJobName,TrainingJobStatus]"
    )
    described = ("aws", "sagemaker", "describe-training-job", "--training-job-name", name)
    tour.show(*described, *text, "FinalMetricDataList[].[MetricName,Value]")
    tell("The same job again.")
    second_s = tour.show(*training)
    is_warm = "started warm" in tour.said("trainyard", "describe", "@last")
    why = ", forked from a worker that had PyTorch imported" if is_warm else ""
    tell(f"{first_s:.1f} s the first time, {second_s:.1f} s now{why}. Where that time went:")
    tour.show("trainyard", "describe", "@last")
    tell("A job that fails says where, why, and what to try.")
    tour.show(*TRAINING, "--", "--batch", "0", ends_with=1)


def tell(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


if __name__ == "__main__":
    main()
