"""`trainyard run`: train a script, with the flags of `ssm`."""

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from signal import Signals
from typing import Any

import click

from trainyard.cli.console import home_option, say
from trainyard.cli.failure import ExitCode
from trainyard.cli.jobs import exit_code_of, failures, find_access
from trainyard.cli.plan import plan_lines
from trainyard.cli.run_arguments import (
    HYPERPARAMETERS,
    InputArgument,
    RunCommand,
    RunOptions,
    instance_group,
    path_input,
    s3_input,
    words_of,
)
from trainyard.connection import Api
from trainyard.distribution import launcher_hyperparameters
from trainyard.estimator import Framework
from trainyard.following import Description, Noted, follow
from trainyard.foundation.locations import parse_s3_uri
from trainyard.inputs import MODES, TrainingInput
from trainyard.job_logs import written_lines
from trainyard.job_names import as_base
from trainyard.outcomes import Details, summary
from trainyard.pytorch import PyTorch
from trainyard.session import Session
from trainyard.showing import Show
from trainyard.tensorflow import TensorFlow
from trainyard.training_job import TrainingJob, detached, instance_count
from trainyard.training_request import require_consistent
from trainyard.transfers import download_object, joined, keys_below

INSTANCE_TYPE = "ml.m5.large"
FRAMEWORKS: dict[str, type[PyTorch] | type[TensorFlow]] = {"pytorch": PyTorch, "tensorflow": TensorFlow}


@click.command(
    cls=RunCommand,
    short_help="Train a script.",
    examples=(
        "trainyard run train.py -- --epochs 3 --lr 0.1",
        "trainyard run train.py -i data/ -o results/                a local folder in, the model out",
        "trainyard run train.py -s src/ --it ml.p3.2xlarge --ic 2",
        "trainyard run train.py --ic 3 --distribution torch_distributed",
        "trainyard run train.py --iis train s3://bucket/data FastFile --iis labels s3://bucket/labels",
        "trainyard run train.py --use_spot_instances --checkpoint_s3_uri s3://bucket/run-1",
        "trainyard run train.py --md loss 'loss: ([0-9.]+)' --detach",
    ),
)
@click.argument("script", required=False)
@click.option("-e", "--entry_point", metavar="SCRIPT", help="The script, where it is not the first argument.")
@click.option(
    "-s", "--source_dir", metavar="DIR", help="Folder with the script and all it needs; SCRIPT is a path in it."
)
@click.option("-d", "--dependencies", metavar="PATH...", help="Files and folders to bring along, beside the script.")
@click.option("-p", "--project_name", metavar="NAME", help="Project; part of the job's name and a tag.")
@click.option("-t", "--task_name", metavar="NAME", help="Task in the project; part of the job's name and a tag.")
@click.option("-b", "--bucket_name", metavar="NAME", help="Bucket to use. Default: one of your own.")
@click.option("--it", "--instance_type", metavar="TYPE", help=f"Instance type. Default: {INSTANCE_TYPE}.")
@click.option("--ic", "--instance_count", metavar="N", type=click.IntRange(1), help="Number of instances. Default: 1.")
@click.option(
    "--group",
    metavar="NAME=TYPE:COUNT",
    multiple=True,
    help="Instances of one type among others, instead of --it and --ic. May be given several times.",
)
@click.option(
    "-v", "--volume_size", metavar="GB", type=int, default=30, show_default=True, help="Disk of each instance."
)
@click.option(
    "--use_spot_instances/--no_spot",
    "spot",
    default=False,
    help="Whether the job costs less, may be interrupted, and goes on later from its checkpoints.",
)
@click.option(
    "--max_run_mins", metavar="N", type=int, default=24 * 60, show_default=True, help="Time limit in minutes."
)
@click.option(
    "--max_wait_mins",
    metavar="N",
    type=int,
    default=0,
    help="With spot: limit of waiting and running together. Default: that of --max_run_mins.",
)
@click.option(
    "--keep_alive",
    metavar="SECONDS",
    type=click.IntRange(0, 21600),
    help="How long to keep warm workers after the job.",
)
@click.option("--isolated", is_flag=True, help="Let the job reach no network: only its own instances, no yard, no AWS.")
@click.option("-f", "--framework", type=click.Choice(list(FRAMEWORKS)), default="pytorch", show_default=True)
@click.option("--fv", "--framework_version", metavar="V", help="Version of the framework. Default: the one there is.")
@click.option("--pv", "--py_version", metavar="V", help="Python version, such as py312.")
@click.option("--image_uri", metavar="IMAGE", help="Image that stands for the environment, instead of a framework's.")
@click.option(
    "--distribution",
    metavar="NAME|JSON",
    help="How processes are launched: torch_distributed, mpi …, or all of it as the sagemaker SDK writes it.",
)
@click.option("--model_uri", metavar="S3_URI", help="A model to begin with; it comes as the channel model.")
@click.option(
    "--checkpoint_s3_uri",
    metavar="S3_URI",
    help="Where the job's checkpoints are kept while it runs; those that are there, it begins with.",
)
@click.option(
    "--checkpoint_local_path",
    metavar="PATH",
    help="Where the script saves and finds them. Default: /opt/ml/checkpoints.",
)
@click.option(
    "-i",
    "--input_path",
    metavar="PATH [MODE] [DISTRIBUTION] [SUBFOLDER]",
    help='Local or S3 data for the channel "data". MODE is as in --input_mode, DISTRIBUTION is FullyReplicated or '
    "ShardedByS3Key: all of it for each instance, or a part.",
)
@click.option(
    "--iis",
    "--input_s3",
    metavar="NAME S3_URI [MODE] [DISTRIBUTION] [SUBFOLDER]",
    multiple=True,
    help="S3 data for a channel of that name. May be given several times.",
)
@click.option(
    "--input_mode",
    type=click.Choice(MODES),
    default=MODES[0],
    show_default=True,
    help="Mode of inputs that name none: File (files that may be changed), FastFile (files to read) or Pipe (a FIFO "
    "for each epoch).",
)
@click.option("--md", "--metric_definitions", nargs=2, metavar="NAME REGEX", multiple=True, help="A metric to read.")
@click.option("--tag", nargs=2, metavar="KEY VALUE", multiple=True, help="A tag of the job.")
@click.option(
    "-o",
    "--output_path",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Local folder to bring logs, model and output to at the end.",
)
@click.option("--download_model", is_flag=True, help="With -o: bring only what is asked for; the model.")
@click.option("--download_output", is_flag=True, help="With -o: bring only what is asked for; the output.")
@click.option("--download_state", is_flag=True, help="With -o: bring only what is asked for; the checkpoints.")
@click.option("--detach", is_flag=True, help="Print the job's name and return at once.")
@click.option("--propagate", is_flag=True, help="When the job fails, exit with the exit code of its script.")
@home_option
@click.pass_context
def run(ctx: click.Context, /, folder: Path | None, **given: Any) -> int:
    """Train SCRIPT and show what it writes; the exit code is 0 only when it has completed.

    Words after -- are hyperparameters: the script gets them as its own arguments. Ctrl-C leaves the job running.
    """
    options = RunOptions(**given)
    access = find_access(folder, starts=True)
    client = access.client()
    try:
        with failures():
            session = Session(api=client, region=access.region, default_bucket=options.bucket_name)
            return _run(session, options, ctx.meta[HYPERPARAMETERS])
    finally:
        client.close()


def _run(session: Session, options: RunOptions, hyperparameters: Mapping[str, Any]) -> int:
    _require_sense(options)
    estimator = _estimator(session, options, hyperparameters)
    inputs = _inputs(options)
    require_consistent(estimator, None)  # before data is brought for it
    launcher_hyperparameters(estimator.distribution, estimator.instance_type, groups=estimator.instance_groups or ())
    quote = _quote(session.api, estimator)
    for line in plan_lines(estimator, inputs, hyperparameters=hyperparameters, quote=quote):
        say(line)
    estimator.fit({given.channel: _brought(session, given, estimator) for given in inputs}, wait=False)
    job = estimator.latest_training_job
    assert job is not None, "fit makes a job"
    if options.detach:
        click.echo(job.name)
        return ExitCode.OK
    say(f'Training job "{job.name}"')
    try:
        _watch(session.api, job, told=quote["Notes"])
    except KeyboardInterrupt:
        say(f"\n{detached(job.name)}")
        return ExitCode.INTERRUPTED
    description, details = job.describe(), job.details()
    say(summary(description, details))
    if options.output_path:
        _bring_results(session, description, options, folder=options.output_path)
    return _exit_code(description, details, propagates=options.propagate)


def _require_sense(options: RunOptions) -> None:
    """UsageError for flags that do not go together, or do nothing without another."""
    if options.max_wait_mins and not options.spot:
        raise click.UsageError("--max_wait_mins is only for spot jobs; add --use_spot_instances, or leave it out.")
    if options.max_wait_mins and options.max_wait_mins < options.max_run_mins:
        raise click.UsageError(
            f"--max_wait_mins is {options.max_wait_mins} and --max_run_mins {options.max_run_mins}; waiting includes "
            "the run, so raise the first or lower the second."
        )
    if options.group and (options.it or options.ic):
        raise click.UsageError("--group has a type and a count of its own; leave --it and --ic out.")
    if options.group and options.keep_alive:
        raise click.UsageError("A job with --group keeps no warm workers after it; leave --keep_alive out.")
    wanted = {"model": options.download_model, "output": options.download_output, "state": options.download_state}
    for kind, is_wanted in wanted.items():
        if is_wanted and not options.output_path:
            raise click.UsageError(f"--download_{kind} needs -o: the folder to bring it to.")
    if options.download_state and not options.checkpoint_s3_uri:
        raise click.UsageError("--download_state brings checkpoints; say where they are kept by --checkpoint_s3_uri.")


def _estimator(session: Session, options: RunOptions, hyperparameters: Mapping[str, Any]) -> Framework:
    script = options.script or options.entry_point
    if not script:
        raise click.UsageError("Which script? Give it first: trainyard run SCRIPT.")
    names = [name for name in (options.project_name, options.task_name) if name]
    return FRAMEWORKS[options.framework](
        entry_point=script,
        framework_version=options.fv,
        py_version=options.pv,
        source_dir=options.source_dir,
        dependencies=words_of(options.dependencies or "[]"),
        hyperparameters=hyperparameters,
        # Who names no version takes what there is; the name of one would be said to stand for another.
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
        base_job_name=as_base("-".join(names) or Path(script).stem),
        sagemaker_session=session,
    )


def _distribution(text: str | None) -> Mapping[str, Any] | None:
    """What an option says: all of it, or the name of one kind alone, which is then enabled."""
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


def _tags(options: RunOptions) -> dict[str, str]:
    """The tags asked for, and those by which ssm finds the jobs of a task again."""
    own = {"SimpleSagemakerProject": options.project_name, "SimpleSagemakerTask": options.task_name}
    return {key: value for key, value in own.items() if value} | dict(options.tag)


def _inputs(options: RunOptions) -> list[InputArgument]:
    found = [s3_input(words_of(words)) for words in options.iis]
    if options.input_path:
        found.insert(0, path_input(words_of(options.input_path)))
    for given in found:
        if not given.location.startswith("s3://") and not Path(given.location).exists():
            raise click.UsageError(f'"{given.location}" is neither a file or folder here nor an S3 location.')
    return found


def _brought(session: Session, given: InputArgument, estimator: Framework) -> TrainingInput:
    location = given.location
    if not location.startswith("s3://"):
        say(f"Bringing {location} to S3 …")
        location = session.upload_data(
            location, key_prefix=joined(estimator.base_job_name or "", "input", given.channel)
        )
    return TrainingInput(location, given.distribution, input_mode=given.mode)


def _quote(api: Api, estimator: Framework) -> Mapping[str, Any]:
    return api.call(
        "trainyard",
        "QuoteJob",
        **_instances(estimator),
        Spot=estimator.use_spot_instances,
        MaxRuntimeInSeconds=estimator.max_run,
    )


def _instances(estimator: Framework) -> Mapping[str, Any]:
    if estimator.instance_groups:
        return {"InstanceGroups": [group.shape for group in estimator.instance_groups]}
    return {"InstanceType": estimator.instance_type, "InstanceCount": estimator.instance_count}


def _watch(api: Api, job: TrainingJob, *, told: Sequence[str]) -> None:
    """Show what happens to a job, less the notes that the plan has told."""
    described = job.describe()
    count = instance_count(described)
    show = Show(sys.stdout, sys.stderr, created_at=described["CreationTime"], instance_count=count)
    events = follow(api, job.name)
    show.all(event for event in events if not isinstance(event, Noted) or event.text not in told)


def _bring_results(session: Session, description: Description, options: RunOptions, *, folder: Path) -> None:
    """Logs always; the model, the output and the checkpoints as asked for, or the first two where nothing is."""
    api, name = session.api, description["TrainingJobName"]
    _write_logs(api, name, folder / "logs")
    wanted = {"model": options.download_model, "output": options.download_output}
    is_any_asked = options.download_state or any(wanted.values())
    place = parse_s3_uri(description["OutputDataConfig"]["S3OutputPath"], account="")
    prefix = joined(place.key, name, "output") + "/"
    there = set(keys_below(api, place.bucket.name, prefix))
    for kind, is_asked in wanted.items():
        key = f"{prefix}{kind}.tar.gz"
        if key in there and (is_asked or not is_any_asked):
            download_object(api, folder / kind / f"{kind}.tar.gz", bucket=place.bucket.name, key=key)
    if options.download_state and options.checkpoint_s3_uri:
        state = parse_s3_uri(f"{options.checkpoint_s3_uri.rstrip('/')}/", account="")
        session.download_data(str(folder / "state"), state.bucket.name, state.key)
    say(f"Results are in {folder}.")


def _write_logs(api: Api, name: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for instance, lines in groupby(written_lines(api, name), key=lambda line: line.instance):
        with (folder / f"{instance}.log").open("w") as file:
            file.writelines(f"{line.text}\n" for line in lines)


def _exit_code(description: Description, details: Details, *, propagates: bool) -> int:
    code = exit_code_of(description)
    if code != ExitCode.FAILED or not propagates:
        return code
    card = details.get("FailureCard", {})
    if card.get("Signal") in Signals.__members__:
        return 128 + Signals[card["Signal"]]
    return card.get("ExitCode") or code
