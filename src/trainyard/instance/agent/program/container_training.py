"""Runs the training program of an instance in a container, for jobs whose image is really run."""

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
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.data.channel_paths import ChannelMounts
from trainyard.instance.agent.data.pipes import PipeChannels
from trainyard.instance.agent.layout import ProgramUser
from trainyard.instance.agent.program.code import program_command
from trainyard.instance.agent.program.environment import container_environment, toolkit_variables
from trainyard.instance.agent.program.hosts import addresses
from trainyard.instance.agent.program.launch import launch_variables, needs_launcher
from trainyard.instance.agent.program.network import InstanceNetwork
from trainyard.instance.agent.program.platform_files import has_checkpoint_folder
from trainyard.instance.agent.program.training import InstanceTraining
from trainyard.instance.agent.reports import now_us
from trainyard.instance.agent.results.failure import CannotRun, FailureKind
from trainyard.instance.agent.watch.debugger import Debugger
from trainyard.instance.agent.watch.supervisor import OutputPipe, RunEnd, Watch
from trainyard.instance.containers.launched_container import ContainerNotStarted, LaunchedContainer, launch_container
from trainyard.instance.containers.request import ContainerMount, ContainerRequest
from trainyard.instance.sandbox.contract import ML, Bind, Sandboxed
from trainyard.instance.sandbox.system_calls import MS_BIND, MS_REC, mount, open_beneath, unmount
from trainyard.link.containers import has_program, is_podman, reclaim_files, run_tool, written_folders
from trainyard.link.contract import ContainerSpec
from trainyard.link.folders import extra_folders
from trainyard.link.ledger import Ledger, LedgerKind

# The image keeps its own files in /opt/ml, such as a program in /opt/ml/code; only these folders are mounted over them.
_MOUNTED_FOLDERS = ("input", "model", "output")
_PROCESSING_FOLDERS = ("config", "processing", "output")
# The exit codes of both tools when the image has no such program, or it cannot be executed.
_CANNOT_EXECUTE = (126, 127)
# For images that set no PATH.
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PYTHON = "python3"
_NOT_CAPTURED = (
    "The program runs in its own image, so its tensors are captured only if that has trainyard and the program uses "
    "its hook; the debugger's rules are not evaluated."
)


class ContainerTraining(InstanceTraining):
    """Runs the training program in a container of its own image."""

    code_folder = f"{ML}/code"

    def __init__(
        self,
        context: InstanceContext,
        *,
        pipes: PipeChannels,
        network: InstanceNetwork,
        debugger: Debugger | None,
        watches: Sequence[Watch] = (),
    ) -> None:
        super().__init__(context, pipes=pipes, network=network, debugger=debugger, watches=watches)
        assert context.spec.container is not None, "other programs run in a sandbox"
        self._container: ContainerSpec = context.spec.container
        self._output = context.output
        # Root in a container may be root of the machine, so hard links to stored objects would not be safe.
        self._channels = ChannelMounts(context.folder, context.spec.channels, owner=ProgramUser(None))
        self._ledger = Ledger(context.folder.ledger)
        self._count = 0
        self._mount_points: list[Path] = []

    def run(self) -> RunEnd:
        image = self._inspect_image()
        container = self._container
        words = [*(container.entrypoint or image.entrypoint), *container.arguments]
        self.command = shlex.join(words)
        if self._debugger is not None:
            self._output.add_line(_NOT_CAPTURED)
            self._debugger.fail([rule.name for rule in self._debugger.rules], _NOT_CAPTURED)
        self._ledger.add(LedgerKind.CONTAINER, tool=container.tool, instance=str(self._folder.root))
        begun_us = now_us()
        try:
            # Without any words, the image itself says what to run.
            has_entrypoint = len(words) > len(container.arguments) or not words
            if has_entrypoint or self._has_program(words[0], image):
                end = self._run(self._request(container.entrypoint, container.arguments))
            else:
                end = self._run(self._script_request())
        finally:
            self._unmount()
        self._finish(end, begun_us)
        reclaim_files(container.tool, self._folder.ml)
        if self._debugger is not None:
            self._debugger.conclude(RuleStatus.STOPPED)
        return end

    def _inspect_image(self) -> "_ImageConfig":
        """Return the image's own configuration; CannotRun when there is no such image."""
        tool, image = self._container.tool, self._container.image
        try:
            config = json.loads(run_tool(tool, "image", "inspect", "--format", "{{json .Config}}", image))
        except Unavailable as error:
            name, why = Path(tool).name, error.message.rstrip(".")
            raise CannotRun(
                f'The image "{image}" cannot be run: {why}. Build it on this machine with `{name} build '
                f"--tag {image} FOLDER`, bring it with `{name} pull {image}`, or let the job's image stand for another "
                "with `trainyard images map`.",
                FailureKind.USER_ERROR,
            ) from error
        variables = dict(each.split("=", 1) for each in config.get("Env") or () if "=" in each)
        return _ImageConfig(tuple(config.get("Entrypoint") or ()), variables.get("PATH", _DEFAULT_PATH).split(":"))

    def _has_program(self, program: str, image: "_ImageConfig") -> bool:
        """Whether an image without an entry point has the program that the job runs."""
        container = self._container
        return has_program(container.tool, container.image, program, folders=image.path, instance=self._folder.root)

    def _script_request(self) -> ContainerRequest:
        """Run the job's script with the Python of the image, which has no SageMaker toolkit to run it."""
        if not self._spec.program.entry_point or needs_launcher(self._spec):
            raise self._missing_program()
        self._output.add_line(f"The image has no program `{self.command}`, so its Python runs the job's script.")
        command = program_command(self._spec, self._folder.ml / "code")
        self.command = command.shown
        variables = {
            "PYTHONUNBUFFERED": "1",
            **launch_variables(self._spec, seen_as=ML),
            **toolkit_variables(self._spec, ML),
        }
        return self._request(command.argv(_PYTHON), (), variables=variables, shows_code=True)

    def _missing_program(self) -> CannotRun:
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
                return launch_container(
                    request, pipe.writer, on_supervisor=self._record_supervisor, check=self._context.commands.check
                )
            except ContainerNotStarted as error:
                while message := pipe.read():
                    self._output.write(message)
                raise self._start_failure(error) from error

        return self._new_supervisor(self._spec.max_runtime_s).run(
            start,
            folders=lambda: written_folders(request.tool, request.name),
            on_start=self._begin,
        )

    def _begin(self, sandboxed: Sandboxed) -> None:
        super()._begin(sandboxed)
        self._note_once((*sandboxed.not_enforced, *self._channels.not_enforced))

    def _record_supervisor(self, pid: int) -> None:
        self._ledger.add(LedgerKind.SUPERVISOR, pid=pid, started=process_start(pid) or "")

    def _start_failure(self, error: ContainerNotStarted) -> CannotRun:
        last_line = "; ".join(self._output.tail.lines(1))
        kind = FailureKind.USER_ERROR if error.code in _CANNOT_EXECUTE else FailureKind.INTERNAL
        return CannotRun(f'The image "{self._container.image}" was not started as `{self.command}`: {last_line}', kind)

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
        uses_podman = is_podman(container.tool)
        if not (uses_podman and os.geteuid() == 0):
            self._channels.place_files()
        return ContainerRequest(
            name=f"trainyard-{spec.job_id}-{spec.attempt}-{spec.instance}-{self._count}",
            folder=self._folder.root,
            scratch_folder=self._folder.scratch / "container",
            tool=container.tool,
            is_podman=uses_podman,
            image=container.image,
            entrypoint=entrypoint,
            arguments=arguments,
            working_folder=self.code_folder if shows_code else "",
            environment={**container_environment(spec), **(variables or {})},
            mounts=[
                *self._mounts(),
                *([ContainerMount(self._folder.ml / "code", self.code_folder)] if shows_code else []),
            ],
            hostname=spec.instance,
            hosts=list(zip(spec.hosts, addresses(spec), strict=True)),
            network=self._network.for_program(None),
            limits=spec.limits,
            enforced=container.limits,
            options=container.options,
        )

    def _mounts(self) -> Iterator[ContainerMount]:
        ml = self._folder.ml
        yield from (ContainerMount(ml / name, f"{ML}/{name}") for name in self._mounted_folders)
        for path in self._synced_paths():
            with ConfinedFolder.open(ml) as folder:
                folder.make_folder(path).close()
            yield ContainerMount(ml / path, f"{ML}/{path}")
        for target, source in extra_folders(self._folder, self._spec).items():
            yield ContainerMount(source, target)
        for overlay in self._channels.copy_on_write:
            yield ContainerMount(overlay.source, overlay.target, is_copy_on_write=True)
        yield from (
            ContainerMount(self._source(bind), bind.target, is_read_only=True) for bind in self._channels.read_only
        )
        yield from (ContainerMount(self._source(bind), bind.target) for bind in self._channels.writable)

    def _source(self, bind: Bind) -> Path:
        """Return the path of a bind for the container tool; CannotRun when it leads out of its source folder.

        Container tools accept only paths. Whoever may write to the file system could put a link into the path before
        the tool resolves it. So root opens the source and mounts it where nobody else can reach. Other users cannot
        mount, but for them a link leads only to what they may see anyway.
        """
        if not bind.below:
            return bind.source
        try:
            descriptor = open_beneath(str(bind.source), bind.below)
        except OSError as error:
            raise CannotRun(f"{bind.below} cannot be mounted: {error.strerror}.", FailureKind.BAD_INPUT) from error
        opened = Path(f"/proc/self/fd/{descriptor}")
        try:
            return opened.readlink() if os.geteuid() else self._mount_opened(opened)
        finally:
            os.close(descriptor)

    def _mount_opened(self, opened: Path) -> Path:
        mount_point = self._folder.scratch / "binds" / str(len(self._mount_points))
        mount_point.mkdir(parents=True)
        self._ledger.add(LedgerKind.MOUNT, path=str(mount_point))
        mount(str(opened), str(mount_point), flags=MS_BIND | MS_REC)
        self._mount_points.append(mount_point)
        return mount_point

    def _unmount(self) -> None:
        while self._mount_points:
            # The ledger lists whatever stays mounted.
            with suppress(OSError):
                unmount(str(self._mount_points.pop()))

    def _synced_paths(self) -> list[str]:
        """The folders under /opt/ml that are synced to S3 and not mounted anyway."""
        spec = self._spec
        synced = [each for each in (spec.checkpoint, spec.tensorboard) if each is not None]
        synced += [spec.debugger.tensors] if spec.debugger is not None else []
        synced += [spec.profiler.output] if spec.profiler is not None else []
        inside = [each.path.removeprefix(f"{ML}/") for each in synced if each.path.startswith(f"{ML}/")]
        return [path for path in inside if path.partition("/")[0] not in self._mounted_folders]

    @property
    def _mounted_folders(self) -> Sequence[str]:
        if self._spec.processing is not None:
            return _PROCESSING_FOLDERS
        return (*_MOUNTED_FOLDERS, "checkpoints") if has_checkpoint_folder(self._spec) else _MOUNTED_FOLDERS


@dataclass(frozen=True, slots=True)
class _ImageConfig:
    """The entry point of an image, and the folders on its PATH."""

    entrypoint: tuple[str, ...]
    path: Sequence[str]
