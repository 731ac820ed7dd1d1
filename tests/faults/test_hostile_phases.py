"""Traps that a job's code leaves in one phase for the more privileged code of the next phase.

Runs on yards of root and of an ordinary user, and on yards whose jobs run on other machines or in images. With
`python -m tests.ray_cluster 3 4 COMMAND` the other machines are a Ray cluster; without it they are simulated nodes with
the same runners.
"""

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from botocore.exceptions import ClientError

from tests.faults.canaries import canaries
from tests.faults.phases import PHASES, Siege, run_phase
from tests.faults.test_killed_containers import give_image, podman_of
from tests.faults.traps import EXTRA, HOST, LAID, SEARCHED, TRAPS
from tests.images import ImageMissing, python_image, run_options
from tests.system.trainees import Trainee
from tests.system.watching import was_started_warm
from tests.system.yards import ROOT, USER, Place, place_for, trainee_of
from trainyard.link.warm import WorkerFolder, is_worker_running, warm_workers
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import ENGINE_SWITCH, RunningYard, engine_of_tests


@dataclass(frozen=True)
class Ground:
    """A kind of yard, and the phases of its jobs that run user code before privileged code."""

    owner: str
    engine: str = "local"
    phases: tuple[str, ...] = tuple(PHASES)
    traps: tuple[str, ...] = tuple(TRAPS)

    def __str__(self) -> str:
        return f"{self.owner}, {self.engine}"


REMOTE = (
    "a build that fails",
    "the program, on two instances",
    "a rule",
    "an attempt that is interrupted",
    "a build of a package that is kept",
    "a run that is drilled",
)
# In a container, a job cannot replace its folders, because each one is a mount.
AMONG = tuple(trap for trap in TRAPS if "in place of" not in trap and "to be mounted" not in trap)
GROUNDS = (
    Ground(ROOT),
    Ground(USER),
    Ground(ROOT, "cluster", REMOTE),
    Ground(USER, "cluster", REMOTE),
    Ground(ROOT, "container", ("the program", "an attempt that is interrupted"), AMONG),
    Ground(USER, "container", ("the program",), AMONG),
)


def case(ground: Ground, phase: str, trap: str) -> ParameterSet:
    """Return a test case. Cases of one ground share a yard, so one xdist worker runs them all."""
    return pytest.param(ground, phase, trap, id=f"{ground}-{phase}-{trap}", marks=pytest.mark.xdist_group(str(ground)))


CASES = [
    case(ground, phase, trap)
    for ground in GROUNDS
    for phase in ground.phases
    for trap in ground.traps
    if trap in PHASES[phase].traps
]

_TRIES = 5

# The escapes found so far. Every change runs these.
FEW = [
    case(GROUNDS[0], "a build", "a channel to be mounted on channels of its instance, full of links to the old root"),
    case(GROUNDS[0], "a build that fails", "links to a folder below the old root in place of everything"),
    case(GROUNDS[0], "a build that fails", "links to a folder of the host in place of everything"),
    case(GROUNDS[0], "the program", "folders that change places with links all the time"),
]


class Sieges:
    """Keeps one siege open at a time, and closes it before it opens that of another ground.

    A fixture with the ground as its parameter would start again whenever pytest interleaves the grounds.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._ground: Ground | None = None
        self._siege: Siege | None = None

    def of(self, ground: Ground) -> Siege:
        if self._siege is None or self._ground != ground:
            self.close()
            self._siege = self._stack.enter_context(_siege_of(ground))
            self._ground = ground
        return self._siege

    def close(self) -> None:
        self._siege = None
        stack, self._stack = self._stack, ExitStack()
        stack.close()


@pytest.fixture(scope="module")
def sieges() -> Iterator[Sieges]:
    opened = Sieges()
    yield opened
    opened.close()


@contextmanager
def _siege_of(ground: Ground) -> Iterator[Siege]:
    with ExitStack() as stack:
        place, yard, changes = stack.enter_context(_yard_of(ground))
        administrator = trainee_of(yard).user
        anna, ben = (Trainee(administrator.add_user(name)).prepare() for name in ("anna", "ben"))
        made = stack.enter_context(canaries(place, yard, neighbour=ben, changes=changes))
        yield Siege(anna, made, changes)
        assert anna.run("afterwards", "print('trains')", **changes)["TrainingJobStatus"] == "Completed"


@contextmanager
def _yard_of(ground: Ground) -> Iterator[tuple[Place, RunningYard, Mapping[str, Any]]]:
    """Start a yard; provide it, its place, and what every request to it contains."""
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        if (ground.engine == "cluster") != (engine_of_tests() == "ray"):
            if engine_of_tests() == "ray":
                pytest.skip("on the engine ray: its jobs run on this machine")
            patch.setenv(ENGINE_SWITCH, "loopback")
        place = stack.enter_context(place_for(ground.owner))
        settings, changes = {"slots": "4"}, {}
        if ground.engine == "container":
            image = _image_for(place, stack)
            settings |= {"engines": "container", "container_options": " ".join(run_options())}
            changes = {"AlgorithmSpecification": {"TrainingImage": image, "TrainingInputMode": "File"}}
        yield place, stack.enter_context(place.running(**settings)), changes


def _image_for(place: Place, stack: ExitStack) -> str:
    try:
        image = python_image()
    except ImageMissing as missing:
        pytest.skip(str(missing))
    if not place.is_root:
        give_image(place, image, podman=stack.enter_context(podman_of(place)))
    return image


@pytest.mark.slow
@pytest.mark.parametrize(("ground", "phase", "trap"), CASES)
def test_nothing_that_a_phase_leaves_lets_later_code_escape_the_job(
    sieges: Sieges, ground: Ground, phase: str, trap: str
) -> None:
    leave_and_look(sieges.of(ground), phase, trap)


@pytest.mark.parametrize(("ground", "phase", "trap"), FEW)
def test_escapes_found_earlier_stay_fixed(sieges: Sieges, ground: Ground, phase: str, trap: str) -> None:
    leave_and_look(sieges.of(ground), phase, trap)


@pytest.mark.xdist_group(str(GROUNDS[0]))
@pytest.mark.parametrize("member", ["CheckpointConfig", "TensorBoardOutputConfig", "DebugHookConfig"])
@pytest.mark.parametrize("above", [HOST, "/.lower", "/.changes", "/proc/1/root", f"{EXTRA}/../../../../../..{HOST}"])
def test_no_path_in_a_request_leads_out_of_the_job(sieges: Sieges, member: str, above: str) -> None:
    siege = sieges.of(GROUNDS[0])
    name, uri = f"path-{uuid.uuid4().hex[:8]}", f"s3://{siege.trainee.bucket}/path"
    config = {"LocalPath": f"{above}{siege.canaries.folder}/made/by/{name}"}
    config |= {"S3Uri": uri} if member == "CheckpointConfig" else {"S3OutputPath": uri}
    refusal = ""
    try:
        siege.trainee.run(name, "print('runs')", **{member: config})
    except ClientError as error:
        refusal = str(error)
    if refusal:
        assert "ValidationException" in refusal
        assert f"{member}.LocalPath" in refusal
    else:
        siege.canaries.require_untouched(siege.trainee, name)


def leave_and_look(siege: Siege, phase: str, trap: str) -> None:
    """Run a job that leaves a trap in a phase, and check that nothing fell into it."""
    name, told = run_and_tell(siege, phase, trap)
    trainee = siege.trainee
    assert LAID in trainee.lines(name), (told.get("FailureReason"), trainee.lines(name)[-20:])
    for each in jobs_of(trainee, name):
        lines = [
            line for number, _ in enumerate(trainee.streams(each)) for line in trainee.lines(each, instance=number)
        ]
        assert SEARCHED in lines or not has_program(trainee.describe(each)), lines[-20:]
        siege.canaries.require_untouched(trainee, each)


def run_and_tell(siege: Siege, phase: str, trap: str) -> tuple[str, dict[str, Any]]:
    """Run a job through a phase and describe it. If it must start warm and did not, a worker was busy: retry."""
    for _ in range(_TRIES):
        name = f"hostile-{uuid.uuid4().hex[:8]}"
        if PHASES[phase].is_warm:
            await_worker(siege)
        told = run_phase(PHASES[phase], trap, siege=siege, name=name)
        if not PHASES[phase].is_warm or was_started_warm(siege.canaries.yard, name):
            return name, told
        siege.canaries.require_untouched(siege.trainee, name)
    pytest.fail(f"none of {_TRIES} jobs started warm")


def jobs_of(trainee: Trainee, name: str) -> list[str]:
    """Return the job itself and the jobs that were created from it."""
    found = trainee.sagemaker.list_training_jobs(NameContains=name, MaxResults=100)["TrainingJobSummaries"]
    return [each["TrainingJobName"] for each in found]


def has_program(told: dict[str, Any]) -> bool:
    """Tell whether the program of a job runs in this phase and prints something; a trap may prevent it."""
    return "ExecuteUserScriptError" in told.get("FailureReason", "ExecuteUserScriptError")


def await_worker(siege: Siege) -> None:
    """Wait for the warm worker that earlier jobs have caused to start."""
    folder = siege.canaries.yard.home.warm
    siege.trainee.run(f"warms-{uuid.uuid4().hex[:8]}", "import torch")
    eventually(lambda: has_torch(folder) or refusal(folder) is not None)
    if not has_torch(folder):
        pytest.skip(f"a warm worker does not trust the folder of these tests: {refusal(folder)}")


def has_torch(folder: Path) -> bool:
    """Tell whether there is a worker for programs with torch; the yard may also have one for programs without."""
    return any("torch" in worker.facts["packages"] for worker in warm_workers(folder))


def refusal(folder: Path) -> str | None:
    """Return why there can be no warm worker. A worker that is still starting also gives a reason."""
    for file in folder.glob("*/*/refused.json"):
        if not is_worker_running(WorkerFolder(file.parent)):
            with suppress(FileNotFoundError):
                return str(json.loads(file.read_text())["why"])
    return None
