"""Options for a script and its instances, which `run` and `tune` share."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.job_names import as_base
from trainyard._sdk.storage.input_uploads import InputUploads
from trainyard._sdk.training.request import tags_of
from trainyard.cli.run.arguments import InputArgument, instance_group, path_input, s3_input, words_of
from trainyard.cli.terminal.console import say, size_text
from trainyard.estimator import Framework
from trainyard.inputs import MODES, TrainingInput
from trainyard.pytorch import PyTorch
from trainyard.session import Session
from trainyard.tensorflow import TensorFlow

INSTANCE_TYPE = "ml.m5.large"
FRAMEWORKS: dict[str, type[PyTorch] | type[TensorFlow]] = {"pytorch": PyTorch, "tensorflow": TensorFlow}

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.argument("script", required=False),
    click.option("-e", "--entry_point", metavar="SCRIPT", help="The script, if it is not the first argument."),
    click.option(
        "-s", "--source_dir", metavar="DIR", help="Folder with the script and its modules; SCRIPT is a path in it."
    ),
    click.option("-d", "--dependencies", metavar="PATH...", help="Files and folders to pack next to the script."),
    click.option("-p", "--project_name", metavar="NAME", help="Project; part of the job's name and a tag."),
    click.option("-t", "--task_name", metavar="NAME", help="Task in the project; part of the job's name and a tag."),
    click.option("-b", "--bucket_name", metavar="NAME", help="Bucket to use. Default: your default bucket."),
    click.option("--it", "--instance_type", metavar="TYPE", help=f"Instance type. Default: {INSTANCE_TYPE}."),
    click.option(
        "--ic", "--instance_count", metavar="N", type=click.IntRange(1), help="Number of instances. Default: 1."
    ),
    click.option(
        "--group",
        metavar="NAME=TYPE:COUNT",
        multiple=True,
        help="A group of instances, instead of --it and --ic. Can be given several times.",
    ),
    click.option(
        "-v", "--volume_size", metavar="GB", type=int, default=30, show_default=True, help="Disk size of each instance."
    ),
    click.option(
        "--use_spot_instances/--no_spot",
        "spot",
        default=False,
        help="Spot jobs cost less, but may be interrupted and resume later from their checkpoints.",
    ),
    click.option(
        "--max_run_mins", metavar="N", type=int, default=24 * 60, show_default=True, help="Time limit in minutes."
    ),
    click.option(
        "--max_wait_mins",
        metavar="N",
        type=int,
        default=0,
        help="With spot: limit of waiting and running together, in minutes. Default: --max_run_mins.",
    ),
    click.option(
        "--keep_alive",
        metavar="SECONDS",
        type=click.IntRange(0, 21600),
        help="How long to keep warm workers after the job.",
    ),
    click.option(
        "--isolated", is_flag=True, help="Run without network access, except between the instances of the job."
    ),
    click.option("-f", "--framework", type=click.Choice(list(FRAMEWORKS)), default="pytorch", show_default=True),
    click.option(
        "--fv", "--framework_version", metavar="V", help="Version of the framework. Default: the installed one."
    ),
    click.option("--pv", "--py_version", metavar="V", help="Python version, such as py312."),
    click.option("--image_uri", metavar="IMAGE", help="Image of the environment, instead of that of the framework."),
    click.option(
        "--distribution",
        metavar="NAME|JSON",
        help="How to launch processes: torch_distributed, mpi …, or the whole argument of the sagemaker SDK as JSON.",
    ),
    click.option("--model_uri", metavar="S3_URI", help="Model to start from; the job gets it as the channel model."),
    click.option(
        "--checkpoint_s3_uri",
        metavar="S3_URI",
        help="Where the checkpoints are stored while the job runs. The job starts with those already there.",
    ),
    click.option(
        "--checkpoint_local_path",
        metavar="PATH",
        help="Where the script saves and finds its checkpoints. Default: /opt/ml/checkpoints.",
    ),
    click.option(
        "-i",
        "--input_path",
        metavar="PATH [MODE] [DISTRIBUTION] [SUBFOLDER]",
        help='Local or S3 data for the channel "data". MODE is as in --input_mode, DISTRIBUTION is FullyReplicated or '
        "ShardedByS3Key: each instance gets all data, or a part.",
    ),
    click.option(
        "--iis",
        "--input_s3",
        metavar="NAME S3_URI [MODE] [DISTRIBUTION] [SUBFOLDER]",
        multiple=True,
        help="S3 data for the channel NAME. Can be given several times.",
    ),
    click.option(
        "--input_mode",
        type=click.Choice(MODES),
        default=MODES[0],
        show_default=True,
        help="Default mode of inputs: File (writable files), FastFile (read-only files) or Pipe (a FIFO for each "
        "epoch).",
    ),
    click.option(
        "--md",
        "--metric_definitions",
        nargs=2,
        metavar="NAME REGEX",
        multiple=True,
        help="A metric to read from the log.",
    ),
    click.option("--tag", nargs=2, metavar="KEY VALUE", multiple=True, help="A tag of the job."),
    click.option("--engine", metavar="NAME", help="Engine to run on. Default: the rules of the yard choose one."),
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
    framework: str
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


def require_consistent_options(options: ScriptOptions) -> None:
    """Raise UsageError for flags that contradict each other or have no effect."""
    if options.max_wait_mins and not options.spot:
        raise click.UsageError("--max_wait_mins is only for spot jobs; add --use_spot_instances, or leave it out.")
    if options.max_wait_mins and options.max_wait_mins < options.max_run_mins:
        raise click.UsageError(
            f"--max_wait_mins is {options.max_wait_mins} and --max_run_mins {options.max_run_mins}; waiting includes "
            "the run, so raise the first or lower the second."
        )
    if options.group and (options.it or options.ic):
        raise click.UsageError("--group has its own type and count; leave --it and --ic out.")
    if options.group and options.keep_alive:
        raise click.UsageError("A job with --group cannot keep warm workers; leave --keep_alive out.")


def estimator_of(session: Session, options: ScriptOptions, hyperparameters: Mapping[str, Any]) -> Framework:
    """Return the estimator of the script."""
    script = options.script or options.entry_point
    if not script:
        raise click.UsageError("The script is missing; give it before the options.")
    names = [name for name in (options.project_name, options.task_name) if name]
    return FRAMEWORKS[options.framework](
        entry_point=script,
        framework_version=options.fv,
        py_version=options.pv,
        source_dir=options.source_dir,
        dependencies=words_of(options.dependencies or "[]"),
        hyperparameters=hyperparameters,
        # Without a version, use the installed one. A concrete version would add a note that it is replaced.
        image_uri=options.image_uri or (None if options.fv else f"{options.framework}-training:latest"),
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


def _upload_input(uploads: InputUploads, given: InputArgument) -> TrainingInput:
    location = given.location
    if not location.startswith("s3://"):
        say(f"Uploading {location} …")
        uploaded = uploads.upload(Path(location))
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
