"""A one-minute tour of a yard: train a network twice, list jobs with the aws CLI, see a job fail, keep the model.

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
# Importing PyTorch takes seconds, on a busy machine many.
MAX_WAIT_S = 60.0


@dataclass
class Tour:
    """Runs commands in the repository and shows their output as it arrives."""

    # The interpreter and the script: the script alone does not start if the path to Python has a space in it.
    aws: tuple[str, ...]
    variables: Mapping[str, str]

    def show(self, *command: str, ends_with: int = 0) -> float:
        """Run a command and return how many seconds it took. An unexpected exit status ends the tour."""
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
            sys.exit(f"The command ended with the unexpected exit status {process.returncode}.")
        return time.monotonic() - started

    def output_of(self, *command: str) -> str:
        """Return what a command prints, without showing it."""
        run = subprocess.run(self._program(*command), env=self.variables, stdout=subprocess.PIPE, text=True, check=True)
        return run.stdout

    def enter(self) -> None:
        """Set the variables of `trainyard env`, as eval "$(trainyard env)" does in a shell."""
        environment = json.loads(self.output_of("trainyard", "env", "--json"))
        kept = {name: value for name, value in self.variables.items() if name not in environment["Unset"]}
        self.variables = kept | environment["Variables"]

    def _program(self, name: str, *words: str) -> list[str]:
        program = self.aws if name == "aws" else (sys.executable, str(Path(sys.executable).with_name(name)))
        return [*program, *words]


def main() -> None:
    python = interpreter("demo")
    copy_digits()
    with tempfile.TemporaryDirectory(prefix="trainyard-demo-") as home:
        tour = Tour((str(python), str(python.with_name("aws"))), {**os.environ, "TRAINYARD_HOME": home})
        announce("A training service on this machine: no AWS account, no container engine, nothing to configure.")
        tour.show("trainyard", "up", "--detach", "--port", "0")
        try:
            tour.enter()
            look_around(tour)
        finally:
            # Before anything is printed: nobody may be left to read it.
            tour.output_of("trainyard", "down")
    announce("The yard is stopped and its home folder is removed. To start your own: trainyard up --detach")
    announce(f"The model is kept in {RESULTS}/model/model.tar.gz")


def copy_digits() -> None:
    (REPOSITORY / RESULTS).mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(sklearn.datasets.__file__).parent / "data" / "digits.csv.gz", REPOSITORY / DIGITS)


def look_around(tour: Tour) -> None:
    announce("A script becomes a job in a sandbox. Its data is provided; its output and metrics appear live.")
    training = (*TRAINING, "-o", RESULTS, *METRICS, "--", "--epochs", "6")
    first_s = tour.show(*training)
    tour.show("trainyard", "metrics", "@last")
    announce("To AWS clients the yard is SageMaker. The aws CLI finds it by the variables of `trainyard env`:")
    name = json.loads(tour.output_of("trainyard", "describe", "@last", "--json"))["TrainingJobName"]
    text = ("--output", "text", "--query")
    tour.show(
        "aws", "sagemaker", "list-training-jobs", *text, "TrainingJobSummaries[].[TrainingJobName,TrainingJobStatus]"
    )
    described = ("aws", "sagemaker", "describe-training-job", "--training-job-name", name)
    tour.show(*described, *text, "FinalMetricDataList[].[MetricName,Value]")
    announce("The same job again, as soon as the yard has an interpreter ready with PyTorch imported.")
    waited_s = wait_for_warm_worker(tour)
    print(f"    {'ready' if waited_s < MAX_WAIT_S else 'not ready'} after {waited_s:.1f} s", flush=True)
    second_s = tour.show(*training)
    notes = [line.strip() for line in tour.output_of("trainyard", "describe", "@last").splitlines() if " warm" in line]
    why = notes[0] if notes else "It started cold; `trainyard doctor` may say why."
    announce(f"{first_s:.1f} s the first time, {second_s:.1f} s now. {why} Where the time went:")
    tour.show("trainyard", "describe", "@last")
    announce("A job that fails says where, why, and what to try.")
    tour.show(*TRAINING, "--", "--batch", "0", ends_with=1)


def wait_for_warm_worker(tour: Tour) -> float:
    """Wait until the yard has a warm worker, but not forever: some machines can have none. Return the seconds."""
    started = time.monotonic()
    while (waited_s := time.monotonic() - started) < MAX_WAIT_S:
        if json.loads(tour.output_of("trainyard", "status", "--json"))["Yard"]["WarmWorkers"]:
            return waited_s
        time.sleep(0.2)
    return MAX_WAIT_S


def announce(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


if __name__ == "__main__":
    main()
