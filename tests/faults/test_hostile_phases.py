"""What code of a job leaves behind in one phase, for whoever runs with more rights in the next.

On the yards of root and of an ordinary user, and on those whose jobs run on other machines or in images. With
`python -m tests.ray_cluster 3 4 COMMAND` those on other machines are on a Ray cluster; without it they are on pretended
nodes, which have the same keepers.
"""

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.faults.canaries import canaries
from tests.faults.phases import PHASES, Siege, run_phase
from tests.faults.test_killed_containers import give_image, podman_of
from tests.faults.traps import EXTRA, HOST, LAID, SEARCHED, TRAPS
from tests.system.trainees import Trainee
from tests.system.yards import ROOT, USER, Place, place_for, trainee_of
from trainyard.link.warm import warm_workers
from trainyard.testing.eventually import eventually
from trainyard.testing.images import ImageMissing, python_image, run_options
from trainyard.testing.yard import ENGINE_SWITCH, RunningYard, engine_of_tests


@dataclass(frozen=True)
class Ground:
    """A kind of yard, and the phases in which its jobs run code that others come after."""

    owner: str
    engine: str = "local"
    phases: tuple[str, ...] = tuple(PHASES)
    traps: tuple[str, ...] = tuple(TRAPS)

    def __str__(self) -> str:
        return f"{self.owner}, {self.engine}"


REMOTE = ("a build that fails", "the program, on two instances", "a rule", "an attempt that is interrupted")
# In a container a job can put nothing in the place of its folders, which are mounts of their own.
AMONG = tuple(trap for trap in TRAPS if "in place of" not in trap and "to be mounted" not in trap)
GROUNDS = (
    Ground(ROOT),
    Ground(USER),
    Ground(ROOT, "cluster", REMOTE),
    Ground(USER, "cluster", REMOTE),
    Ground(ROOT, "container", ("the program", "an attempt that is interrupted"), AMONG),
    Ground(USER, "container", ("the program",), AMONG),
)
CASES = [
    pytest.param(ground, phase, trap, id=f"{ground}-{phase}-{trap}")
    for ground in GROUNDS
    for phase in ground.phases
    for trap in ground.traps
]

# What is tried with every change: the ways out that were there once.
FEW = [
    pytest.param(ground, phase, trap, id=f"{ground}-{phase}-{trap}")
    for ground, phase, trap in (
        (GROUNDS[0], "a build", "a channel to be mounted on channels of its instance, full of links to the old root"),
        (GROUNDS[0], "a build that fails", "links to a folder below the old root in place of everything"),
        (GROUNDS[0], "a build that fails", "links to a folder of the host in place of everything"),
        (GROUNDS[0], "the program", "folders that change places with links all the time"),
    )
]


@pytest.fixture(scope="module")
def siege(request: pytest.FixtureRequest) -> Iterator[Siege]:
    ground: Ground = request.param
    with ExitStack() as stack:
        place, yard, changes = stack.enter_context(_yard_of(ground))
        administrator = trainee_of(yard).user
        anna, ben = (Trainee(administrator.add_user(name)).prepare() for name in ("anna", "ben"))
        made = stack.enter_context(canaries(place, yard, neighbour=ben, changes=changes))
        yield Siege(anna, made, changes)
        assert anna.run("afterwards", "print('trains')", **changes)["TrainingJobStatus"] == "Completed"


@contextmanager
def _yard_of(ground: Ground) -> Iterator[tuple[Place, RunningYard, Mapping[str, Any]]]:
    """A yard that runs, where it is, and what every request has there."""
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
@pytest.mark.parametrize(("siege", "phase", "trap"), CASES, indirect=["siege"], scope="module")
def test_what_a_phase_leaves_leads_nobody_out_of_the_job(siege: Siege, phase: str, trap: str) -> None:
    leave_and_look(siege, phase, trap)


@pytest.mark.parametrize(("siege", "phase", "trap"), FEW, indirect=["siege"], scope="module")
def test_what_once_led_out_of_a_job_does_so_no_more(siege: Siege, phase: str, trap: str) -> None:
    leave_and_look(siege, phase, trap)


@pytest.mark.parametrize("siege", GROUNDS[:1], indirect=True, scope="module", ids=str)
@pytest.mark.parametrize("member", ["CheckpointConfig", "TensorBoardOutputConfig", "DebugHookConfig"])
@pytest.mark.parametrize("above", [HOST, "/.lower", "/.changes", "/proc/1/root", f"{EXTRA}/../../../../../..{HOST}"])
def test_no_path_that_a_request_names_leads_out_of_the_job(siege: Siege, member: str, above: str) -> None:
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
    """Run a job that leaves a trap in a phase, and see that nobody stepped into it."""
    name, trainee = f"hostile-{uuid.uuid4().hex[:8]}", siege.trainee
    if PHASES[phase].is_warm:
        await_worker(siege)
    told = run_phase(PHASES[phase], trap, siege=siege, name=name)
    assert LAID in trainee.lines(name), (told.get("FailureReason"), trainee.lines(name)[-20:])
    assert SEARCHED in trainee.lines(name) or not has_program(told), trainee.lines(name)[-20:]
    siege.canaries.require_untouched(trainee, name)


def has_program(told: dict[str, Any]) -> bool:
    """Whether the program of a job ran, which then has something to say; what was laid may well keep it from that."""
    return "ExecuteUserScriptError" in told.get("FailureReason", "ExecuteUserScriptError")


def await_worker(siege: Siege) -> None:
    """Wait for the warm worker that earlier jobs have brought about."""
    folder = siege.canaries.yard.home.warm
    siege.trainee.run(f"warms-{uuid.uuid4().hex[:8]}", "import torch")
    eventually(lambda: bool(warm_workers(folder)) or any(folder.glob("*/*/refused.json")))
    if not warm_workers(folder):
        why = json.loads(next(folder.glob("*/*/refused.json")).read_text())["why"]
        pytest.skip(f"these tests lie where no warm worker trusts them: {why}")
