"""`trainyard tensorboard`: show the TensorBoard files of jobs."""

import contextlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.storage.mirror import AppendedMirror
from trainyard._sdk.training.stream import FINAL, Description
from trainyard.cli.completion.values import complete_jobs
from trainyard.cli.jobs.lookup import find_job, open_api
from trainyard.cli.terminal.console import CONTEXT_SETTINGS, CommandWithExamples, environment, say, yard_option
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.locations import parse_s3_uri

_UPDATE_S = 5


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard tensorboard @last",
        "trainyard tensorboard mnist-1 mnist-2              compare two jobs",
        "trainyard tensorboard mnist-1 runs/                with a local folder",
        "trainyard tensorboard @last --port 6007            options of TensorBoard come last",
    ),
    context_settings={**CONTEXT_SETTINGS, "ignore_unknown_options": True},
)
@click.argument(
    "words",
    metavar="JOB... [OPTIONS OF TENSORBOARD]",
    nargs=-1,
    required=True,
    type=click.UNPROCESSED,
    shell_complete=complete_jobs,
)
@yard_option
def tensorboard(words: tuple[str, ...], folder: Path | None) -> int:
    """Start TensorBoard on what jobs write to their TensorBoardOutputConfig, also while they run.

    A local folder with event files can stand for a job. TensorBoard listens on this machine only, unless its options
    say otherwise, and ends with Ctrl-C. It must be installed in the Python of trainyard or be on the path.
    """
    names = list(takewhile(lambda word: not word.startswith("-"), words))
    if not names:
        raise click.UsageError("Name at least one job before the options of TensorBoard.")
    program = _program()
    with tempfile.TemporaryDirectory(prefix="trainyard-tensorboard-") as logs, contextlib.ExitStack() as stack:
        mirrors: list[AppendedMirror] = []
        local = [name for name in names if Path(name).is_dir()]
        for path in (Path(name).resolve() for name in local):
            if (Path(logs) / path.name).is_symlink():
                raise click.UsageError(f'Two folders are named "{path.name}"; TensorBoard could not tell them apart.')
            (Path(logs) / path.name).symlink_to(path)
        if len(local) < len(names):
            api = stack.enter_context(open_api(folder))
            jobs = [find_job(api, name) for name in names if name not in local]
            mirrors = [_mirror(api, job, Path(logs)) for job in jobs]
        command = [*program, "--logdir", logs, "--host", "127.0.0.1", *words[len(names) :]]
        return _run(command, mirrors)


def _program() -> list[str]:
    """Return the command that starts TensorBoard. Raises a failure that says how to install it."""
    if importlib.util.find_spec("tensorboard") is not None:
        return [sys.executable, "-m", "tensorboard.main"]
    if found := shutil.which("tensorboard", path=environment().get("PATH")):
        return [found]
    raise Failure(
        "TensorBoard is not installed.",
        why="It is neither in the Python of trainyard nor on the path.",
        next_step=f"{sys.executable} -m pip install tensorboard",
    )


def _mirror(api: Api, job: Description, logs: Path) -> AppendedMirror:
    name = job["TrainingJobName"]
    config = job.get("TensorBoardOutputConfig")
    if config is None:
        raise Failure(
            f'Training job "{name}" has no TensorBoardOutputConfig, so the yard stored nothing for TensorBoard.',
            next_step="Create the job with tensorboard_output_config, or give the local folder with its event files",
            code=ExitCode.NOT_FOUND,
        )
    place = parse_s3_uri(f"{config['S3OutputPath'].rstrip('/')}/{name}/tensorboard-output/", account="")
    mirror = AppendedMirror(api, logs / name, bucket=place.bucket.name, prefix=place.key)
    if not mirror.update():
        end = "and has ended" if job["TrainingJobStatus"] in FINAL else "yet; they are shown as soon as it does"
        say(f'Training job "{name}" has stored no event files {end}.')
    return mirror


def _run(command: Sequence[str], mirrors: Sequence[AppendedMirror]) -> int:
    """Run TensorBoard until it ends, and keep its files up to date."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return child.wait(timeout=_UPDATE_S)
            for mirror in mirrors:
                _update(mirror)
    except KeyboardInterrupt:
        # The terminal has sent the signal to TensorBoard, too.
        child.wait()
        return ExitCode.OK
    finally:
        if child.poll() is None:
            child.terminate()
            child.wait()


def _update(mirror: AppendedMirror) -> None:
    try:
        mirror.update()
    except TrainyardError as error:
        # The yard may be restarting; the next round tries again.
        say(f"The event files could not be updated: {error.message}")
