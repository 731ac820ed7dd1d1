"""`trainyard run`: train a script. The flags are those of `ssm`."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from signal import Signals
from typing import Any

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.storage.transfers import download_object
from trainyard._sdk.training.cloudwatch import read_log
from trainyard._sdk.training.console import EventPrinter
from trainyard._sdk.training.distribution import launcher_hyperparameters
from trainyard._sdk.training.job import TrainingJobHandle, detached_message, instance_count
from trainyard._sdk.training.outcomes import Details, summary
from trainyard._sdk.training.request import require_consistent
from trainyard._sdk.training.stream import Description, NoteAdded, follow_job
from trainyard.cli.jobs.lookup import exit_code_of, find_access, translate_failures
from trainyard.cli.run.arguments import HYPERPARAMETERS, RunCommand
from trainyard.cli.run.plan import plan_lines
from trainyard.cli.run.script import (
    ScriptOptions,
    estimator_of,
    inputs_of,
    quote_of,
    require_consistent_options,
    script_options,
    upload_inputs,
)
from trainyard.cli.terminal.console import home_option, say
from trainyard.cli.terminal.failure import ExitCode
from trainyard.foundation.locations import parse_s3_uri
from trainyard.session import Session


@dataclass(frozen=True, slots=True)
class RunOptions(ScriptOptions):
    """The options of `trainyard run`, named after the flags."""

    output_path: Path | None
    download_model: bool
    download_output: bool
    download_state: bool
    detach: bool
    propagate: bool


@click.command(
    cls=RunCommand,
    examples=(
        "trainyard run train.py -- --epochs 3 --lr 0.1",
        "trainyard run train.py -i data/ -o results/                upload a folder, download the model",
        "trainyard run train.py -s src/ --it ml.p3.2xlarge --ic 2",
        "trainyard run train.py --ic 3 --distribution torch_distributed",
        "trainyard run train.py --iis train s3://bucket/data FastFile --iis labels s3://bucket/labels",
        "trainyard run train.py --use_spot_instances --checkpoint_s3_uri s3://bucket/run-1",
        "trainyard run train.py --md loss 'loss: ([0-9.]+)' --detach",
    ),
)
@script_options
@click.option(
    "-o",
    "--output_path",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Local folder to which logs, model and output are downloaded at the end.",
)
@click.option("--download_model", is_flag=True, help="With -o: download the model, and only what is selected.")
@click.option("--download_output", is_flag=True, help="With -o: download the output, and only what is selected.")
@click.option("--download_state", is_flag=True, help="With -o: download the checkpoints, and only what is selected.")
@click.option("--detach", is_flag=True, help="Print the name of the job and return at once.")
@click.option("--propagate", is_flag=True, help="If the job fails, exit with the exit code of its script.")
@home_option
@click.pass_context
def run(ctx: click.Context, /, folder: Path | None, **given: Any) -> int:
    """Train SCRIPT and show its log. The exit code is 0 only if the job completes.

    Words after -- are hyperparameters; the script gets them as its arguments. Ctrl-C leaves the job running.
    """
    options = RunOptions(**given)
    access = find_access(folder, starts=True)
    client = access.client()
    try:
        with translate_failures():
            session = Session(api=client, region=access.region, default_bucket=options.bucket_name)
            return _run(session, options, ctx.meta[HYPERPARAMETERS])
    finally:
        client.close()


def _run(session: Session, options: RunOptions, hyperparameters: Mapping[str, Any]) -> int:
    _require_consistent_options(options)
    estimator = estimator_of(session, options, hyperparameters)
    inputs = inputs_of(options)
    # Check the options before any data is uploaded.
    require_consistent(estimator, None)
    launcher_hyperparameters(estimator.distribution, estimator.instance_type, groups=estimator.instance_groups or ())
    quote = quote_of(session.api, estimator)
    for line in plan_lines(estimator, inputs, hyperparameters=hyperparameters, quote=quote):
        say(line)
    with session.input_uploads() as uploads:
        estimator.fit(upload_inputs(uploads, inputs), wait=False)
    job = estimator.latest_training_job
    assert job is not None, "fit creates a job"
    if options.detach:
        click.echo(job.name)
        return ExitCode.OK
    say(f'Training job "{job.name}"')
    try:
        _print_events(session.api, job, known_notes=quote["Notes"])
    except KeyboardInterrupt:
        say(f"\n{detached_message(job.name)}")
        return ExitCode.INTERRUPTED
    description, details = job.describe(), job.details()
    say(summary(description, details))
    if options.output_path:
        _download_results(session, description, details, options=options, folder=options.output_path)
    return _exit_code(description, details, propagates=options.propagate)


def _require_consistent_options(options: RunOptions) -> None:
    """Raise UsageError for flags that contradict each other or have no effect."""
    require_consistent_options(options)
    wanted = {"model": options.download_model, "output": options.download_output, "state": options.download_state}
    for kind, is_wanted in wanted.items():
        if is_wanted and not options.output_path:
            raise click.UsageError(f"--download_{kind} needs -o, the folder for the download.")
    if options.download_state and not options.checkpoint_s3_uri:
        raise click.UsageError("--download_state downloads checkpoints; set their location with --checkpoint_s3_uri.")


def _print_events(api: Api, job: TrainingJobHandle, *, known_notes: Sequence[str]) -> None:
    """Print the events of a job, except for notes that the plan has already shown."""
    description = job.describe()
    count = instance_count(description)
    printer = EventPrinter(sys.stdout, sys.stderr, created_at=description["CreationTime"], instance_count=count)
    events = follow_job(api, job.name)
    printer.print_events(event for event in events if not isinstance(event, NoteAdded) or event.text not in known_notes)


def _download_results(
    session: Session, description: Description, details: Details, *, options: RunOptions, folder: Path
) -> None:
    """Download the logs, and the selected results. Without a selection, these are the model and the output."""
    api = session.api
    _write_logs(api, description["TrainingJobName"], folder / "logs")
    wanted = {"model": options.download_model, "output": options.download_output}
    has_selection = options.download_state or any(wanted.values())
    # Use the artifacts of this job: the prefix with its name may hold those of an earlier job of the same name.
    stored = {artifact["Kind"]: parse_s3_uri(artifact["S3Uri"], account="") for artifact in details["Artifacts"]}
    for kind, is_wanted in wanted.items():
        if kind in stored and (is_wanted or not has_selection):
            where = stored[kind]
            download_object(api, folder / kind / f"{kind}.tar.gz", bucket=where.bucket.name, key=where.key)
    if options.download_state and options.checkpoint_s3_uri:
        state = parse_s3_uri(f"{options.checkpoint_s3_uri.rstrip('/')}/", account="")
        session.download_data(str(folder / "state"), state.bucket.name, state.key)
    say(f"Results are in {folder}.")


def _write_logs(api: Api, name: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for instance, lines in groupby(read_log(api, name), key=lambda line: line.instance):
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
