"""Options for a script and its instances, which `run` and `tune` share."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.job_names import as_base
from trainyard._sdk.storage.input_uploads import InputUploads
from trainyard._sdk.training.distribution import launcher_hyperparameters
from trainyard._sdk.training.request import tags_of
from trainyard._sdk.training.source_code import require_files
from trainyard.cli.completion.values import (
    complete_engines,
    complete_images,
    complete_instance_types,
    complete_launchers,
)
from trainyard.cli.jobs.lookup import find_remote_access
from trainyard.cli.run.arguments import InputArgument, instance_group, path_input, s3_input, words_of
from trainyard.cli.terminal.console import say, select_home, size_text
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.progress import transfer_bar
from trainyard.engines.catalog import Catalog
from trainyard.estimator import Framework
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.locations import parse_s3_uri
from trainyard.inputs import MODES, TrainingInput
from trainyard.pytorch import PyTorch
from trainyard.session import Session
from trainyard.tensorflow import TensorFlow
from trainyard.wire.client import CallFailed

INSTANCE_TYPE = "ml.m5.large"
# Of the estimator that runs any script, and of the image if --framework-version is given alone.
_DEFAULT_FRAMEWORK = "pytorch"
FRAMEWORKS: dict[str, type[PyTorch] | type[TensorFlow]] = {"pytorch": PyTorch, "tensorflow": TensorFlow}

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.argument("script", required=False, type=click.Path()),
    click.option(
        "-e", "--entry-point", metavar="SCRIPT", type=click.Path(), help="The script, if it is not the first argument."
    ),
    click.option(
        "-s",
        "--source-dir",
        metavar="DIR",
        type=click.Path(file_okay=False),
        help="Folder with the script and its modules; SCRIPT is a path in it.",
    ),
    click.option("--dependencies", metavar="PATH...", help="Files and folders to pack next to the script."),
    click.option(
        "--local-modules/--script-only",
        default=True,
        show_default=True,
        help="Without -s: whether to pack the modules beside SCRIPT that it imports, and its requirements.txt.",
    ),
    click.option("-p", "--project-name", metavar="NAME", help="Project; part of the job's name and a tag."),
    click.option("-t", "--task-name", metavar="NAME", help="Task in the project; part of the job's name and a tag."),
    click.option("-b", "--bucket-name", metavar="NAME", help="Bucket to use. Default: your default bucket."),
    click.option(
        "--it",
        "--instance-type",
        metavar="TYPE",
        shell_complete=complete_instance_types,
        help=f"Instance type. Default: {INSTANCE_TYPE}.",
    ),
    click.option(
        "--ic", "--instance-count", metavar="N", type=click.IntRange(1), help="Number of instances. Default: 1."
    ),
    click.option(
        "--group",
        metavar="NAME=TYPE:COUNT",
        multiple=True,
        help="A group of instances, instead of --it and --ic. Can be given several times.",
    ),
    click.option(
        "-v",
        "--volume-size",
        metavar="GB",
        type=click.IntRange(1),
        default=30,
        show_default=True,
        help="Disk size of each instance.",
    ),
    click.option(
        "--spot",
        "--use-spot-instances/--no-spot",
        "spot",
        default=False,
        help="Spot jobs cost less, but may be interrupted and resume later from their checkpoints.",
    ),
    click.option(
        "--max-run-mins",
        metavar="N",
        type=click.IntRange(1),
        default=24 * 60,
        show_default=True,
        help="Time limit in minutes.",
    ),
    click.option(
        "--max-wait-mins",
        metavar="N",
        type=click.IntRange(0),
        default=0,
        help="With spot: limit of waiting and running together, in minutes. Default: --max-run-mins.",
    ),
    click.option(
        "--keep-alive",
        metavar="SECONDS",
        type=click.IntRange(0, 21600),
        help="How long to keep warm workers after the job.",
    ),
    click.option(
        "--isolated", is_flag=True, help="Run without network access, except between the instances of the job."
    ),
    click.option(
        "-f",
        "--framework",
        type=click.Choice(list(FRAMEWORKS)),
        help="Framework, for its image. Default: one that the yard has installed.",
    ),
    click.option(
        "--fv", "--framework-version", metavar="V", help="Version of the framework. Default: the installed one."
    ),
    click.option("--pv", "--py-version", metavar="V", help="Python version, such as py312."),
    click.option(
        "--image-uri",
        metavar="IMAGE",
        shell_complete=complete_images,
        help="Image of the environment, instead of that of the framework.",
    ),
    click.option(
        "--distribution",
        metavar="NAME|JSON",
        shell_complete=complete_launchers,
        help="How to launch processes: torch_distributed, mpi …, or the whole argument of the sagemaker SDK as JSON.",
    ),
    click.option("--model-uri", metavar="S3_URI", help="Model to start from; the job gets it as the channel model."),
    click.option(
        "--checkpoint-s3-uri",
        metavar="S3_URI",
        help="Where the checkpoints are stored while the job runs. The job starts with those already there.",
    ),
    click.option(
        "--checkpoint-local-path",
        metavar="PATH",
        help="Where the script saves and finds its checkpoints. Default: /opt/ml/checkpoints.",
    ),
    click.option(
        "-i",
        "--input-path",
        type=click.Path(),
        metavar="PATH [MODE] [DISTRIBUTION] [SUBFOLDER]",
        help='Local or S3 data for the channel "data". MODE is as in --input-mode, DISTRIBUTION is FullyReplicated or '
        "ShardedByS3Key: each instance gets all data, or a part.",
    ),
    click.option(
        "--iis",
        "--input-s3",
        metavar="NAME S3_URI [MODE] [DISTRIBUTION] [SUBFOLDER]",
        multiple=True,
        help="S3 data for the channel NAME. Can be given several times.",
    ),
    click.option(
        "--input-mode",
        type=click.Choice(MODES),
        default=MODES[0],
        show_default=True,
        help="Default mode of inputs: File (writable files), FastFile (read-only files) or Pipe (a FIFO for each "
        "epoch).",
    ),
    click.option(
        "--md",
        "--metric-definitions",
        nargs=2,
        metavar="NAME REGEX",
        multiple=True,
        help="A metric to read from the log.",
    ),
    click.option("--tag", nargs=2, metavar="KEY VALUE", multiple=True, help="A tag of the job."),
    click.option(
        "--engine",
        metavar="NAME",
        shell_complete=complete_engines,
        help="Engine to run on. Default: the rules of the yard choose one.",
    ),
    click.option(
        "--prices", is_flag=True, help="Show prices: approximations of those of AWS, unless catalog.toml sets them."
    ),
)


def script_options(function: F) -> F:
    """Add the options of ScriptOptions to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class ScriptOptions:
    """The options of a script and its jobs, named after the flags.

    `dependencies`, `input_path` and `iis` hold joined words, which `words_of` splits.
    """

    script: str | None
    entry_point: str | None
    source_dir: str | None
    dependencies: str | None
    local_modules: bool
    project_name: str | None
    task_name: str | None
    bucket_name: str | None
    it: str | None
    ic: int | None
    group: tuple[str, ...]
    volume_size: int
    spot: bool
    max_run_mins: int
    max_wait_mins: int
    keep_alive: int | None
    isolated: bool
    framework: str | None
    fv: str | None
    pv: str | None
    image_uri: str | None
    distribution: str | None
    model_uri: str | None
    checkpoint_s3_uri: str | None
    checkpoint_local_path: str | None
    input_mode: str
    input_path: str | None
    iis: tuple[str, ...]
    md: tuple[tuple[str, str], ...]
    tag: tuple[tuple[str, str], ...]
    engine: str | None
    prices: bool


def require_usable_options(options: ScriptOptions, folder: Path | None) -> None:
    """Raise UsageError for flags that contradict each other, have no effect, or name what does not exist.

    This needs no yard, so that a mistake starts none and is not preceded by other output.
    """
    _require_consistent_flags(options)
    try:
        require_files(script_of(options), options.source_dir, words_of(options.dependencies or "[]"))
        _require_known_types(options, folder)
        _require_known_launcher(options)
    except InvalidRequest as error:
        raise click.UsageError(error.message) from error
    inputs_of(options)
    _require_regular_expressions(options)


def script_of(options: ScriptOptions) -> str:
    """Return the script. Raises UsageError without one."""
    script = options.script or options.entry_point
    if not script:
        raise click.UsageError("The script is missing; give it before the options.")
    return script


def _require_known_types(options: ScriptOptions, folder: Path | None) -> None:
    """Raise InvalidRequest for an instance type that the catalog of a yard on this machine does not have."""
    # Only the yard itself knows its catalog if it is on another machine.
    if find_remote_access(folder) is not None:
        return
    groups = [instance_group(text).instance_type for text in options.group]
    catalog = Catalog.read(select_home(folder).catalog_file)
    for name in groups or [options.it or INSTANCE_TYPE]:
        try:
            _ = catalog[name]
        except InvalidRequest as error:
            near = get_close_matches(name, [each.name for each in catalog], 1)
            raise InvalidRequest(error.message + (f' Did you mean "{near[0]}"?' if near else "")) from error


def _require_known_launcher(options: ScriptOptions) -> None:
    groups = [instance_group(text) for text in options.group]
    instance_type = None if groups else options.it or INSTANCE_TYPE
    launcher_hyperparameters(_distribution(options.distribution), instance_type, groups=groups)


def _require_regular_expressions(options: ScriptOptions) -> None:
    for name, regex in options.md:
        try:
            re.compile(regex)
        except (re.error, RecursionError, OverflowError) as error:
            message = f'--md {name}: "{regex}" is not a regular expression: {error}.'
            raise click.UsageError(message) from error


def _require_consistent_flags(options: ScriptOptions) -> None:
    for flag, location in (("model", options.model_uri), ("checkpoint-s3", options.checkpoint_s3_uri)):
        if location and not location.startswith("s3://"):
            raise click.UsageError(f'--{flag}-uri is "{location}"; write a location on S3, such as s3://bucket/prefix.')
    if options.max_wait_mins and not options.spot:
        raise click.UsageError("--max-wait-mins is only for spot jobs; add --use-spot-instances, or leave it out.")
    if options.max_wait_mins and options.max_wait_mins < options.max_run_mins:
        raise click.UsageError(
            f"--max-wait-mins is {options.max_wait_mins} and --max-run-mins {options.max_run_mins}; waiting includes "
            "the run, so raise the first or lower the second."
        )
    if options.group and (options.it or options.ic):
        raise click.UsageError("--group has its own type and count; leave --it and --ic out.")
    if options.group and options.keep_alive:
        raise click.UsageError("A job with --group cannot keep warm workers; leave --keep-alive out.")


def estimator_of(session: Session, options: ScriptOptions, hyperparameters: Mapping[str, Any]) -> Framework:
    """Return the estimator of the script."""
    script = script_of(options)
    names = [name for name in (options.project_name, options.task_name) if name]
    return FRAMEWORKS[options.framework or _DEFAULT_FRAMEWORK](
        entry_point=script,
        framework_version=options.fv,
        py_version=options.pv,
        source_dir=options.source_dir,
        dependencies=words_of(options.dependencies or "[]"),
        include_local_modules=options.local_modules,
        hyperparameters=hyperparameters,
        # Without a version, use the installed one. A concrete version would add a note that it is replaced.
        image_uri=options.image_uri or (None if options.fv else _image(session.api, options)),
        distribution=_distribution(options.distribution),
        instance_type=None if options.group else options.it or INSTANCE_TYPE,
        instance_count=options.ic or 1,
        instance_groups=[instance_group(text) for text in options.group],
        keep_alive_period_in_seconds=options.keep_alive,
        enable_network_isolation=options.isolated,
        volume_size=options.volume_size,
        use_spot_instances=options.spot,
        max_run=options.max_run_mins * 60,
        max_wait=(options.max_wait_mins or options.max_run_mins) * 60 if options.spot else None,
        input_mode=options.input_mode,
        model_uri=options.model_uri,
        checkpoint_s3_uri=options.checkpoint_s3_uri,
        checkpoint_local_path=options.checkpoint_local_path,
        metric_definitions=[{"Name": name, "Regex": regex} for name, regex in options.md],
        tags=_tags(options),
        engine=options.engine,
        base_job_name=as_base("-".join(names) or Path(script).stem),
        sagemaker_session=session,
    )


def inputs_of(options: ScriptOptions) -> list[InputArgument]:
    """Return the inputs. Raises UsageError for a local path that does not exist."""
    found = [s3_input(words_of(words)) for words in options.iis]
    if options.input_path:
        found.insert(0, path_input(words_of(options.input_path)))
    for given in found:
        if not given.location.startswith("s3://") and not Path(given.location).exists():
            raise click.UsageError(f'"{given.location}" is neither a local file or folder nor an S3 location.')
    return found


def upload_inputs(uploads: InputUploads, inputs: Sequence[InputArgument]) -> dict[str, TrainingInput]:
    """Upload the local inputs, and return all inputs by channel."""
    return {given.channel: _upload_input(uploads, given) for given in inputs}


def quote_of(api: Api, estimator: Framework) -> Mapping[str, Any]:
    """Return the price of a job of the estimator, and the queue before it."""
    return api.call(
        "trainyard",
        "QuoteJob",
        **_instances(estimator),
        Spot=estimator.use_spot_instances,
        MaxRuntimeInSeconds=estimator.max_run,
        Image=estimator.training_image_uri(),
        Tags=tags_of(estimator),
    )


def require_accepted(api: Api, estimator: Framework, inputs: Sequence[InputArgument], quote: Mapping[str, Any]) -> None:
    """Raise Failure for an image that the yard refuses, or a bucket that does not exist.

    The creation of the job would refuse them too, but only after the plan was printed and the data was uploaded.
    """
    if obstacle := quote.get("ImageObstacle"):
        raise Failure(obstacle)
    locations: dict[str, str | None] = {f"the input {given.channel}": given.location for given in inputs}
    locations |= {"--model-uri": estimator.model_uri, "--checkpoint-s3-uri": estimator.checkpoint_s3_uri}
    for what, location in locations.items():
        if location and location.startswith("s3://"):
            _require_bucket(api, parse_s3_uri(location, account="").bucket.name, what=what)


def _require_bucket(api: Api, bucket: str, *, what: str) -> None:
    try:
        api.call("s3", "HeadBucket", Bucket=bucket)
    except CallFailed as error:
        if error.status != 404:
            raise
        raise Failure(
            f'The bucket "{bucket}" of {what} does not exist.',
            next_step=f'check its name, or create it: eval "$(trainyard env)" && aws s3 mb s3://{bucket}',
            code=ExitCode.NOT_FOUND,
        ) from error


def _image(api: Api, options: ScriptOptions) -> str:
    """Return the image of the framework, or the one that the yard has for scripts without a framework."""
    if options.framework:
        return f"{options.framework}-training:latest"
    quoted = api.call("trainyard", "QuoteJob", InstanceType=INSTANCE_TYPE, InstanceCount=1, Tags=[])
    # A yard of the previous version does not name one.
    return quoted.get("Image") or f"{_DEFAULT_FRAMEWORK}-training:latest"


def _upload_input(uploads: InputUploads, given: InputArgument) -> TrainingInput:
    location = given.location
    if not location.startswith("s3://"):
        with transfer_bar(f"Uploading {location}") as show:
            uploaded = uploads.upload(Path(location), show=show)
        if uploaded.sent_files:
            sent, count = uploaded.sent_files, uploaded.files
            say(f"Uploaded {sent:,} of {count:,} file{'s' if count > 1 else ''}, {size_text(uploaded.sent_bytes)}.")
        else:
            say("All files had been uploaded before.")
        location = uploaded.uri
    return TrainingInput(location, given.distribution, input_mode=given.mode)


def _distribution(text: str | None) -> Mapping[str, Any] | None:
    """Parse --distribution: the whole argument as JSON, or the name of one kind, which is then enabled."""
    if text is None:
        return None
    if text.isidentifier():
        return {text: {"enabled": True}}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise click.UsageError(
            f"--distribution is neither a name, such as torch_distributed, nor JSON: {error}."
        ) from error
    if not isinstance(found, dict):
        raise click.UsageError("--distribution must be a name or a JSON object.")
    return found


def _tags(options: ScriptOptions) -> dict[str, str]:
    """Return the tags of the job, including those with which ssm finds the jobs of a task."""
    own = {"SimpleSagemakerProject": options.project_name, "SimpleSagemakerTask": options.task_name}
    return {key: value for key, value in own.items() if value} | dict(options.tag)


def _instances(estimator: Framework) -> Mapping[str, Any]:
    if estimator.instance_groups:
        return {"InstanceGroups": [group.shape for group in estimator.instance_groups]}
    return {"InstanceType": estimator.instance_type, "InstanceCount": estimator.instance_count}
