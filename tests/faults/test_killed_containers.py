"""kill -9 of every process that knows a job's container, but not of the container; and a yard of an ordinary user."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.images import ImageMissing, python_image, require_podman, run_options
from tests.system.yards import USER, Place, place_for, trainee_of
from trainyard.link.agent_process import find_agent_process
from trainyard.link.containers import instances_with_containers
from trainyard.link.ledger import Ledger, LedgerKind
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, running_yard, start_yard

ENDLESS = "print('ready', flush=True); import time; time.sleep(3600)"


@pytest.fixture(scope="module")
def image() -> str:
    try:
        return python_image()
    except ImageMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def settings() -> dict[str, str]:
    told = {"ENGINES": "container", "CONTAINER_OPTIONS": " ".join(run_options())}
    return {f"TRAINYARD_SERVER_{name}": value for name, value in told.items()}


def contained(image: str, code: str) -> dict[str, Any]:
    words = ["python3", "-c", code]
    shape = {"TrainingImage": image, "TrainingInputMode": "File", "ContainerEntrypoint": words}
    return {"AlgorithmSpecification": shape, "HyperParameters": {}}


@pytest.mark.slow
def test_a_restarted_yard_removes_the_container_of_an_agent_that_was_killed_with_it(
    tmp_path: Path, image: str, settings: dict[str, str]
) -> None:
    yard = start_yard(tmp_path / "yard", environment=settings)
    running_job(yard, image)
    kill_all(yard)
    assert len(left(yard)) == 1

    with running_yard(tmp_path / "yard", environment=settings) as back:
        eventually(lambda: trainee_of(back).describe("contained")["TrainingJobStatus"] == "Failed")
        eventually(lambda: left(back) == [])


@pytest.mark.slow
def test_gc_removes_a_container_that_nobody_owns(tmp_path: Path, image: str, settings: dict[str, str]) -> None:
    yard = start_yard(tmp_path / "yard", environment=settings)
    running_job(yard, image)
    kill_all(yard)

    swept = subprocess.run(
        [sys.executable, "-m", "trainyard.cli", "gc", "--home", str(yard.home.root)],
        check=True,
        capture_output=True,
        text=True,
    )

    assert "containers whose agents are gone" in swept.stdout
    assert left(yard) == []


@pytest.mark.slow
def test_a_yard_of_an_ordinary_user_runs_images_and_removes_what_their_users_wrote(image: str) -> None:
    code = "import os; open('/opt/ml/model/weights', 'w').write('w'); print('user', os.getuid())"
    with place_for(USER) as place, podman_of(place) as podman:
        give_image(place, image, podman=podman)
        with place.running(engines="container", container_options=" ".join(run_options())) as yard:
            trainee = trainee_of(yard).prepare()
            job = trainee.run("contained", "", **contained(image, code))
            assert job["TrainingJobStatus"] == "Completed", (job, trainee.lines("contained"))
            assert "user 0" in trainee.lines("contained")
            assert trainee.keys("out/contained/") == ["out/contained/output/model.tar.gz"]
            eventually(lambda: not list(yard.home.jobs.glob("*/*/algo-1/ml")))


Podman = Callable[..., "subprocess.CompletedProcess[str]"]


@contextmanager
def podman_of(place: Place) -> Iterator[Podman]:
    """Run podman as the yard's user; end what podman keeps running for this user afterwards."""

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [require_podman(), *words],
            env={"HOME": str(place.home_of_user), "PATH": "/usr/bin:/bin"},
            cwd=place.home_of_user,
            capture_output=True,
            text=True,
            check=False,
            **place.identity(),
        )

    yield run
    if place.uid != os.geteuid():
        run("system", "migrate")
        for folder in (f"/tmp/containers-user-{place.uid}", f"/tmp/podman-run-{place.uid}"):
            shutil.rmtree(folder, ignore_errors=True)


def give_image(place: Place, image: str, *, podman: Podman) -> None:
    """Copy the image into the store of the yard's user, which is separate."""
    file = place.home_of_user / "image.tar"
    subprocess.run([require_podman(), "save", "--quiet", "--output", str(file), image], check=True)
    place.give(file)
    loaded = podman("load", "--quiet", "--input", str(file))
    if loaded.returncode:
        pytest.skip(f"podman does not work for an ordinary user here: {loaded.stderr.strip().splitlines()[-1:]}")


def running_job(yard: RunningYard, image: str) -> None:
    trainee = trainee_of(yard).prepare()
    trainee.start("contained", "", **contained(image, ENDLESS))
    eventually(lambda: "ready" in trainee.lines("contained"))


def kill_all(yard: RunningYard) -> None:
    """Kill the yard, the agent, and the container's supervisor, which would otherwise remove it."""
    (folder,) = yard.home.jobs.glob("*/*/algo-1")
    entries = Ledger(folder / "ledger.jsonl").entries()
    (keeper,) = [entry.details["pid"] for entry in entries if entry.kind is LedgerKind.SUPERVISOR]
    agent = find_agent_process(folder)
    assert agent is not None
    yard.kill()
    for pid in (agent.pid, keeper):
        os.kill(pid, signal.SIGSTOP)
    for pid in (keeper, agent.pid):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not agent.is_alive)


def left(yard: RunningYard) -> list[Path]:
    return instances_with_containers(require_podman(), yard.home.jobs)
