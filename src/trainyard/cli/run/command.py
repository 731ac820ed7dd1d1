"""`trainyard run`: train a script. The flags are those of `ssm`."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from signal import Signals
from typing import Any, Self, TextIO

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.job_names import JOB_NAME, MAX_LENGTH
from trainyard._sdk.storage.progress import ByteProgress
from trainyard._sdk.storage.transfers import download_object, list_objects, local_path
from trainyard._sdk.training.cloudwatch import read_log
from trainyard._sdk.training.job import TrainingJobHandle, detached_message, instance_count
from trainyard._sdk.training.outcomes import Details, summary
from trainyard._sdk.training.request import require_consistent
from trainyard._sdk.training.stream import Description, NoteAdded, follow_job
from trainyard.cli.jobs.lookup import describe_if_present, exit_code_of, find_access, to_json, translate_failures
from trainyard.cli.run.arguments import HYPERPARAMETERS
from trainyard.cli.run.plan import plan_lines
from trainyard.cli.run.project_file import ProjectRunCommand, used_options
from trainyard.cli.run.script import (
    ScriptOptions,
    estimator_of,
    inputs_of,
    quote_of,
    require_accepted,
    require_usable_options,
    script_options,
    upload_inputs,
)
from trainyard.cli.terminal.console import result_option, say, yard_option
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.job_progress import event_printer
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.terminal.progress import transfer_bar
from trainyard.foundation.locations import parse_s3_uri
from trainyard.session import Session

_RESULT_FIELDS = (
    *("TrainingJobName", "TrainingJobArn", "TrainingJobStatus", "SecondaryStatus", "FailureReason"),
    *("TrainingTimeInSeconds", "ModelArtifacts"),
)


@dataclass(frozen=True, slots=True)
class RunOptions(ScriptOptions):
    """The options of `trainyard run`, named after the flags."""

    output_path: Path | None
    download_model: bool
    download_output: bool
    download_state: bool
    name: str | None
    detach: bool
    propagate: bool
    as_json: JsonFields | None


@click.command(
    cls=ProjectRunCommand,
    examples=(
        "trainyard run train.py -- --epochs 3 --lr 0.1",
        "trainyard run train.py --name mnist-7                      the exact name of the job",
        "trainyard run train.py -i data/ -o results/                upload a folder, download the model",
        "trainyard run train.py -s src/ --it ml.p3.2xlarge --ic 2",
        "trainyard run train.py --ic 3 --distribution torch_distributed",
        "trainyard run train.py --iis train s3://bucket/data FastFile --iis labels s3://bucket/labels",
        "trainyard run train.py --use-spot-instances --checkpoint-s3-uri s3://bucket/run-1",
        "trainyard run train.py --md loss 'loss: ([0-9.]+)' --detach",
    ),
)
@script_options
@click.option(
    "-o",
    "--output-path",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Local folder to which logs, model and output are downloaded at the end.",
)
@click.option("--download-model", is_flag=True, help="With -o: download the model, and only what is selected.")
@click.option("--download-output", is_flag=True, help="With -o: download the output, and only what is selected.")
@click.option("--download-state", is_flag=True, help="With -o: download the checkpoints, and only what is selected.")
@click.option("--name", metavar="NAME", help="Name of the job. Default: the script, or project and task, and the time.")
@click.option("-d", "--detach", is_flag=True, help="Print the name of the job and return at once.")
@click.option("--propagate", is_flag=True, help="If the job fails, exit with the exit code of its script.")
@yard_option
@result_option(*_RESULT_FIELDS)
@click.pass_context
def run(ctx: click.Context, /, folder: Path | None, **given: Any) -> int:
    """Train SCRIPT and show its log. The exit code is 0 only if the job completes.

    Words after -- are hyperparameters; the script gets them as its arguments. Ctrl-C leaves the job running. Options
    can also be in the table [run] of a file trainyard.toml beside SCRIPT; without SCRIPT, in the current folder.
    """
    options = RunOptions(**given)
    _require_usable_options(options, folder)
    if from_file := used_options(ctx):
        say(from_file)
    access = find_access(folder, starts=True)
    client = access.client()
    try:
        with translate_failures():
            session = Session(api=client, region=access.region, default_bucket=options.bucket_name)
            return _run(session, options, ctx.meta[HYPERPARAMETERS])
    finally:
        client.close()


def _run(session: Session, options: RunOptions, hyperparameters: Mapping[str, Any]) -> int:
    estimator = estimator_of(session, options, hyperparameters)
    inputs = inputs_of(options)
    if options.name and describe_if_present(session.api, options.name):
        raise _name_taken(options.name)
    # Check the options before any data is uploaded.
    require_consistent(estimator, None)
    quote = quote_of(session.api, estimator)
    require_accepted(session.api, estimator, inputs, quote)
    for line in plan_lines(estimator, inputs, hyperparameters=hyperparameters, quote=quote, shows_price=options.prices):
        say(line)
    with session.input_uploads() as uploads:
        estimator.fit(upload_inputs(uploads, inputs), wait=False, job_name=options.name)
    job = estimator.latest_training_job
    assert job is not None, "fit creates a job"
    if options.detach:
        if options.output_path:
            say(f"Nothing is downloaded to {options.output_path}, because --detach does not wait for the results.")
        _print_result(job, options.as_json)
        return ExitCode.OK
    say(f'Training job "{job.name}"')
    try:
        notes = [*quote["Notes"], *quote.get("ImageNotes", ())]
        # With --json, stdout is for the result alone.
        _print_events(session.api, job, sys.stderr if options.as_json else sys.stdout, known_notes=notes)
    except KeyboardInterrupt:
        say(f"\n{detached_message(job.name)}")
        return ExitCode.INTERRUPTED
    description, details = job.describe(), job.details()
    say(summary(description, details, shows_price=options.prices))
    if options.output_path:
        _download_results(session, description, details, options=options, folder=options.output_path)
    if options.as_json:
        _print_result(job, options.as_json)
    return _exit_code(description, details, propagates=options.propagate)


def _require_usable_options(options: RunOptions, folder: Path | None) -> None:
    """Raise UsageError for flags that contradict each other, have no effect, or name what does not exist."""
    require_usable_options(options, folder)
    if options.name and not JOB_NAME.fullmatch(options.name):
        raise click.UsageError(
            f'"{options.name}" cannot be the name of a job; write up to {MAX_LENGTH} letters, digits and dashes, '
            "with a letter or a digit at both ends."
        )
    wanted = {"model": options.download_model, "output": options.download_output, "state": options.download_state}
    for kind, is_wanted in wanted.items():
        if is_wanted and not options.output_path:
            raise click.UsageError(f"--download-{kind} needs -o, the folder for the download.")
    if options.output_path and not _can_write(options.output_path):
        raise click.UsageError(f"--output-path {options.output_path} cannot be written by this user.")
    if options.download_state and not options.checkpoint_s3_uri:
        raise click.UsageError("--download-state downloads checkpoints; set their location with --checkpoint-s3-uri.")


def _can_write(folder: Path) -> bool:
    existing = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    return existing.is_dir() and os.access(existing, os.W_OK)


def _name_taken(name: str) -> Failure:
    return Failure(
        f'There is already a training job named "{name}".',
        why="The names of jobs are unique until they are removed.",
        next_step=f"choose another --name, or trainyard rm {name}",
    )


def _print_result(job: TrainingJobHandle, as_json: JsonFields | None) -> None:
    """Print the name of the job or, with --json, what it has come to so far."""
    if as_json is None:
        click.echo(job.name)
        return
    found = to_json(job.describe())
    result = {name: found.get(name) for name in _RESULT_FIELDS}
    print_json(result | {"ModelArtifacts": result["ModelArtifacts"] or None}, as_json)


def _print_events(api: Api, job: TrainingJobHandle, lines: TextIO, *, known_notes: Sequence[str]) -> None:
    """Print the events of a job, except for notes that the plan has already shown."""
    description = job.describe()
    count = instance_count(description)
    events = follow_job(api, job.name)
    with event_printer(lines, created_at=description["CreationTime"], instance_count=count) as printer:
        printer.print_events(
            event for event in events if not isinstance(event, NoteAdded) or event.text not in known_notes
        )


def _download_results(
    session: Session, description: Description, details: Details, *, options: RunOptions, folder: Path
) -> None:
    """Download the logs, and the selected results. Without a selection, these are the model and the output."""
    api = session.api
    _write_logs(api, description["TrainingJobName"], folder / "logs")
    wanted = {"model": options.download_model, "output": options.download_output}
    has_selection = options.download_state or any(wanted.values())
    # Use the artifacts of this job: the prefix with its name may hold those of an earlier job of the same name.
    stored = {artifact["Kind"]: artifact for artifact in details["Artifacts"]}
    downloads = [
        _Download.of_artifact(stored[kind], folder)
        for kind, is_wanted in wanted.items()
        if kind in stored and (is_wanted or not has_selection)
    ]
    if options.download_state and options.checkpoint_s3_uri:
        downloads += _checkpoint_downloads(api, options.checkpoint_s3_uri, folder / "state")
    with transfer_bar("Downloading the results") as show:
        progress = ByteProgress(sum(each.size for each in downloads), show)
        for each in downloads:
            download_object(api, each.target, bucket=each.bucket, key=each.key, after_part=progress.add)
    say(f"Results are in {folder}.")


@dataclass(frozen=True, slots=True)
class _Download:
    bucket: str
    key: str
    size: int
    target: Path

    @classmethod
    def of_artifact(cls, artifact: Mapping[str, Any], folder: Path) -> Self:
        where, kind = parse_s3_uri(artifact["S3Uri"], account=""), artifact["Kind"]
        return cls(where.bucket.name, where.key, artifact["SizeInBytes"], folder / kind / f"{kind}.tar.gz")


def _checkpoint_downloads(api: Api, uri: str, folder: Path) -> Iterator[_Download]:
    where = parse_s3_uri(f"{uri.rstrip('/')}/", account="")
    for found in list_objects(api, where.bucket.name, where.key):
        if not found.key.endswith("/"):
            yield _Download(where.bucket.name, found.key, found.size, local_path(folder, found.key, where.key))


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
