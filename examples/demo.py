"""A tour of a yard: start one, let boto3 and the aws CLI talk to it, stop it. Run it with `make demo`."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.environments import interpreter

EXAMPLES = Path(__file__).parent


@dataclass
class Tour:
    """Types commands and shows what they say. `python` is that of an environment with boto3 and the aws CLI."""

    python: Path
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def show(self, program: str, *words: str | Path, is_refused: bool = False) -> None:
        typed = " ".join([program, *(word.name if isinstance(word, Path) else word for word in words)])
        print(f"  $ {typed}", flush=True)
        run = subprocess.run(
            [*self._program(program), *map(str, words)],
            env=self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(*(f"    {line}" for line in run.stdout.splitlines()), sep="\n", flush=True)
        if (run.returncode != 0) != is_refused:
            sys.exit(f"This was not to be expected: exit status {run.returncode}.")

    def _program(self, name: str) -> list[str]:
        if name == "trainyard":
            return [str(Path(sys.executable).with_name(name))]
        # Not by its first line, which breaks where the path to Python has a space in it.
        return [str(self.python)] if name == "python" else [str(self.python), str(self.python.with_name(name))]

    def enter(self, home: str) -> None:
        """Lay the variables of `trainyard env` over those of this process."""
        command = [*self._program("trainyard"), "env", "--json", "--home", home]
        described = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        kept = {name: value for name, value in os.environ.items() if name not in described["unset"]}
        self.variables = kept | described["variables"]


def main() -> None:
    tour = Tour(interpreter("demo"))
    with tempfile.TemporaryDirectory(prefix="trainyard-demo-") as folder:
        home = f"{folder}/yard"
        tell("A yard, on a home folder of its own and free ports.")
        tour.show("trainyard", "up", "--detach", "--home", home, "--port", "0")
        try:
            look_around(tour, home, Path(folder))
        finally:
            tell("And stopped again.")
            tour.show("trainyard", "down", "--home", home)
    tell("Everything it kept was in its home folder, which is removed now. Your own: trainyard up --detach")


def look_around(tour: Tour, home: str, folder: Path) -> None:
    """Unmodified AWS clients, told where the yard is by nothing but the variables of `trainyard env`."""
    tell("What AWS clients need to know of it:")
    print(f'  $ eval "$(trainyard env --home {home})"')
    tour.enter(home)
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_REGION"):
        print(f"    {name}={tour.variables[name]}")
    tell("Who am I?")
    tour.show("aws", "sts", "get-caller-identity")
    tell("boto3 makes a bucket, and writes, lists and reads objects.")
    tour.show("python", EXAMPLES / "buckets_and_objects.py")
    tell("boto3 writes log events, a metric and a role.")
    tour.show("python", EXAMPLES / "logs_metrics_and_roles.py")
    tell("The aws CLI sees the same bucket, and copies into it and out of it.")
    report = folder / "report.txt"
    report.write_text("All trains ran on time.\n")
    tour.show("aws", "s3", "cp", report, "s3://first-steps/reports/")
    tour.show("aws", "s3", "ls", "--recursive", "s3://first-steps")
    tour.show("aws", "s3", "cp", "s3://first-steps/reports/report.txt", "-")
    tell("An operation that Trainyard does not serve says so.")
    command = ("s3api", "put-bucket-versioning", "--bucket", "first-steps", "--versioning-configuration")
    tour.show("aws", *command, "Status=Enabled", is_refused=True)
    tell("And it trains: a script becomes a job in a sandbox, with live output, a metric, and a model in the bucket.")
    metric = ("--md", "loss", "loss=([0-9.]+)")
    tour.show("trainyard", "run", EXAMPLES / "fit_a_line.py", "--home", home, *metric, "--", "--epochs", "5")
    tour.show("trainyard", "metrics", "@last", "--home", home)


def tell(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


if __name__ == "__main__":
    main()
