"""The program of an instance whose image really runs: in a container, beside which the agent stays."""

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.home import process_start
from trainyard.foundation.rule_status import RuleStatus
from trainyard.instance.agent.attendance import Attendance
from trainyard.instance.agent.code import program_command
from trainyard.instance.agent.debugging import Debugging
from trainyard.instance.agent.environment import container_environment, toolkit_variables
from trainyard.instance.agent.failure import CannotRun, FailureKind
from trainyard.instance.agent.hosts import addresses
from trainyard.instance.agent.launching import launch_variables, needs_launcher
from trainyard.instance.agent.layout import Owner
from trainyard.instance.agent.network import InstanceNetwork
from trainyard.instance.agent.orders import Orders
from trainyard.instance.agent.output import Output
from trainyard.instance.agent.pipes import Pipes
from trainyard.instance.agent.placing import ChannelPlaces
from trainyard.instance.agent.reports import Reports, now_us
from trainyard.instance.agent.supervision import OutputPipe, RunEnd
from trainyard.instance.containers.launched import LaunchedContainer, NotStarted, launch_container
from trainyard.instance.containers.request import ContainerRequest, Mount
from trainyard.instance.sandbox.contract import ML, Bind, Sandboxed
from trainyard.instance.sandbox.system_calls import MS_BIND, MS_REC, mount, open_beneath, unmount
from trainyard.link.containers import ask, has_program, is_podman, take_back, written_folders
from trainyard.link.contract import ContainerSpec, InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.ledger import Ledger, LedgerKind
from trainyard.link.places import extra_folders

# Of /opt/ml the image keeps what is its own, such as a program in /opt/ml/code; only these are shown in its place.
_SHOWN = ("input", "model", "output", "checkpoints")
_NOT_RUN = (126, 127)  # how both tools end when the image has no such program, or it is none
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # of an image that names none
_PYTHON = "python3"
_UNCAPTURED = (
    "The program runs in its own image, so its tensors are captured only if that has trainyard and the program uses "
    "its hook; the rules of the debugger do not judge it."
)


class ContainedTraining:
    """Runs the program of an instance once, in its image. `command` is how messages name it, from then on."""

    code_folder = f"{ML}/code"

    def __init__(
        self,
        folder: InstanceFolder,
        spec: InstanceSpec,
        *,
        output: Output,
        orders: Orders,
        reports: Reports,
        owner: Owner,  # noqa: ARG002 - in a container the program is root
        pipes: Pipes,
        network: InstanceNetwork,
        debugging: Debugging | None = None,
    ) -> None:
        assert spec.container is not None, "others run in a sandbox"
        self.command = ""
        self._folder = folder
        self._spec = spec
        self._container: ContainerSpec = spec.container
        self._output = output
        self._orders = orders
        self._network = network
        self._debugging = debugging
        self._attendance = Attendance(
            folder, spec, output=output, orders=orders, reports=reports, pipes=pipes, debugging=debugging
        )
        # Root of a container may be root of the machine, so that hard links to stored objects would not be safe.
        self._places = ChannelPlaces(folder, spec.channels, owner=Owner(None))
        self._ledger = Ledger(folder.ledger)
        self._count = 0
        self._mounted_places: list[Path] = []

    def run(self) -> RunEnd:
        """Run the image and report how its program ended; CannotRun when it cannot be, Ordered when it is not to be."""
        image = self._image()
        container = self._container
        words = [*(container.entrypoint or image.entrypoint), *container.arguments]
        self.command = shlex.join(words)
        if self._debugging is not None:
            self._output.say(_UNCAPTURED)
            self._debugging.fail([rule.name for rule in self._debugging.rules], _UNCAPTURED)
        self._ledger.add(LedgerKind.CONTAINER, tool=container.tool, instance=str(self._folder.root))
        begun_us = now_us()
        try:
            if len(words) > len(container.arguments) or self._has(words[0], image):
                end = self._run(self._request(container.entrypoint, container.arguments))
            else:
                end = self._run(self._script_request())
        finally:
            self._unmount()
        self._attendance.finish(end, begun_us)
        take_back(container.tool, self._folder.ml)
        if self._debugging is not None:
            self._debugging.conclude(RuleStatus.STOPPED)
        return end

    def _image(self) -> "_Image":
        """What is known of the image; CannotRun when there is no such image."""
        tool, image = self._container.tool, self._container.image
        try:
            config = json.loads(ask(tool, "image", "inspect", "--format", "{{json .Config}}", image))
        except Unavailable as error:
            name, why = Path(tool).name, error.message.rstrip(".")
            raise CannotRun(
                f'The image "{image}" cannot be run: {why}. Build it on this machine with `{name} build '
                f"--tag {image} FOLDER`, bring it with `{name} pull {image}`, or let the job's image stand for another "
                "with `trainyard images map`.",
                FailureKind.USER_ERROR,
            ) from error
        variables = dict(each.split("=", 1) for each in config.get("Env") or () if "=" in each)
        return _Image(tuple(config.get("Entrypoint") or ()), variables.get("PATH", _USUAL_PATH).split(":"))

    def _has(self, program: str, image: "_Image") -> bool:
        """Whether an image without an entry point has the program that it shall run."""
        container = self._container
        return has_program(container.tool, container.image, program, folders=image.path, instance=self._folder.root)

    def _script_request(self) -> ContainerRequest:
        """The script of the job, for the Python of an image that has no toolkit of SageMaker to run it."""
        if not self._spec.program.entry_point or needs_launcher(self._spec):
            raise self._missing()
        self._output.say(f"The image has no program `{self.command}`, so its Python runs the script of the job.")
        command = program_command(self._spec, self._folder.ml / "code")
        self.command = command.shown
        variables = {
            "PYTHONUNBUFFERED": "1",
            **launch_variables(self._spec, seen_as=ML),
            **toolkit_variables(self._spec, ML),
        }
        return self._request(command.argv(_PYTHON), (), variables=variables, shows_code=True)

    def _missing(self) -> CannotRun:
        what = "start the processes of this job" if self._spec.program.entry_point else "train"
        return CannotRun(
            f'The image "{self._container.image}" has no program `{self._container.arguments[0]}` that could {what}. '
            "SageMaker starts a training image with the word `train`: give the image such a program (the package "
            "sagemaker-training has one) or an entry point, or the job a ContainerEntrypoint.",
            FailureKind.USER_ERROR,
        )

    def _run(self, request: ContainerRequest) -> RunEnd:
        def start(pipe: OutputPipe) -> LaunchedContainer:
            try:
                return launch_container(request, pipe.writer, on_keeper=self._enter_keeper, check=self._orders.check)
            except NotStarted as error:
                while said := pipe.read():
                    self._output.write(said)
                raise self._refusal(error) from error

        def begin(sandboxed: Sandboxed) -> None:
            self._attendance.begin(sandboxed)
            self._attendance.note((*sandboxed.not_enforced, *self._places.not_enforced))

        return self._attendance.supervision.run(
            start,
            limit_s=self._spec.max_runtime_s,
            folders=lambda: written_folders(request.tool, request.name),
            on_start=begin,
        )

    def _enter_keeper(self, pid: int) -> None:
        self._ledger.add(LedgerKind.KEEPER, pid=pid, started=process_start(pid) or "")

    def _refusal(self, error: NotStarted) -> CannotRun:
        said = "; ".join(self._output.tail.lines(1))
        kind = FailureKind.USER_ERROR if error.code in _NOT_RUN else FailureKind.INTERNAL
        return CannotRun(f'The image "{self._container.image}" was not started as `{self.command}`: {said}', kind)

    def _request(
        self,
        entrypoint: Sequence[str],
        arguments: Sequence[str],
        *,
        variables: dict[str, str] | None = None,
        shows_code: bool = False,
    ) -> ContainerRequest:
        spec, container = self._spec, self._container
        self._count += 1
        has_podman = is_podman(container.tool)
        if not (has_podman and os.geteuid() == 0):
            self._places.place_files()
        return ContainerRequest(
            name=f"trainyard-{spec.job_id}-{spec.attempt}-{spec.instance}-{self._count}",
            folder=self._folder.root,
            scratch_folder=self._folder.scratch / "container",
            tool=container.tool,
            is_podman=has_podman,
            image=container.image,
            entrypoint=entrypoint,
            arguments=arguments,
            working_folder=self.code_folder if shows_code else "",
            environment={**container_environment(spec), **(variables or {})},
            mounts=[*self._mounts(), *([Mount(self._folder.ml / "code", self.code_folder)] if shows_code else [])],
            hostname=spec.instance,
            hosts=list(zip(spec.hosts, addresses(spec), strict=True)),
            network=self._network.for_program(None),
            limits=spec.limits,
            enforced=container.limits,
            options=container.options,
        )

    def _mounts(self) -> Iterator[Mount]:
        ml = self._folder.ml
        yield from (Mount(ml / name, f"{ML}/{name}") for name in _SHOWN)
        for path in self._synced_paths():
            with ConfinedFolder.open(ml) as folder:
                folder.make_folder(path).close()
            yield Mount(ml / path, f"{ML}/{path}")
        for target, place in extra_folders(self._folder, self._spec).items():
            yield Mount(place, target)
        for layered in self._places.copy_on_write:
            yield Mount(layered.source, layered.target, is_layered=True)
        yield from (Mount(self._source(bind), bind.target, is_read_only=True) for bind in self._places.read_only)
        yield from (Mount(self._source(bind), bind.target) for bind in self._places.writable)

    def _source(self, bind: Bind) -> Path:
        """What a container tool, which takes nothing but paths, finds what is bound by; CannotRun when it leads out.

        Who may write to a file system could put a link into the path before the tool gets there. So root mounts what it
        has opened at a place that nobody else reaches. Other users cannot, but what they see is all that a link gives.
        """
        if not bind.below:
            return bind.source
        try:
            descriptor = open_beneath(str(bind.source), bind.below)
        except OSError as error:
            raise CannotRun(f"{bind.below} cannot be shown: {error.strerror}.", FailureKind.BAD_INPUT) from error
        opened = Path(f"/proc/self/fd/{descriptor}")
        try:
            return opened.readlink() if os.geteuid() else self._mounted(opened)
        finally:
            os.close(descriptor)

    def _mounted(self, opened: Path) -> Path:
        place = self._folder.scratch / "binds" / str(len(self._mounted_places))
        place.mkdir(parents=True)
        self._ledger.add(LedgerKind.MOUNT, path=str(place))
        mount(str(opened), str(place), flags=MS_BIND | MS_REC)
        self._mounted_places.append(place)
        return place

    def _unmount(self) -> None:
        while self._mounted_places:
            with suppress(OSError):  # what is still there is in the ledger
                unmount(str(self._mounted_places.pop()))

    def _synced_paths(self) -> list[str]:
        """What is kept in S3 of /opt/ml besides what every program is shown."""
        spec = self._spec
        synced = [each for each in (spec.checkpoint, spec.tensorboard) if each is not None]
        synced += [spec.debugger.tensors] if spec.debugger is not None else []
        inside = [each.path.removeprefix(f"{ML}/") for each in synced if each.path.startswith(f"{ML}/")]
        return [path for path in inside if path.partition("/")[0] not in _SHOWN]


@dataclass(frozen=True, slots=True)
class _Image:
    """What an image says of itself: the entry point, and where its programs lie."""

    entrypoint: tuple[str, ...]
    path: Sequence[str]
