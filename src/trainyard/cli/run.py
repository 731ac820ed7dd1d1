"""`trainyard run`: train a script, with the flags of `ssm`."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from signal import Signals
from typing import Any

import click

from trainyard.cli.console import home_option, say
from trainyard.cli.failure import ExitCode
from trainyard.cli.jobs import exit_code_of, failures, find_access
from trainyard.cli.plan import plan_lines
from trainyard.cli.run_arguments import HYPERPARAMETERS, RunCommand
from trainyard.cli.script import (
    ScriptOptions,
    estimator_of,
    inputs_of,
    quote_of,
    require_sense,
    script_options,
    upload_inputs,
)
from trainyard.connection import Api
from trainyard.distribution import launcher_hyperparameters
from trainyard.following import Description, Noted, follow
from trainyard.foundation.locations import parse_s3_uri
from trainyard.job_logs import written_lines
from trainyard.outcomes import Details, summary
from trainyard.session import Session
from trainyard.showing import Show
from trainyard.training_job import TrainingJob, detached, instance_count
from trainyard.training_request import require_consistent
from trainyard.transfers import download_object


@dataclass(frozen=True, slots=True)
class RunOptions(ScriptOptions):
    """What was asked of `trainyard run`, by the names of the flags."""

    output_path: Path | None
    download_model: bool
    download_output: bool
    download_state: bool
    detach: bool
    propagate: bool


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
@script_options
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
    estimator = estimator_of(session, options, hyperparameters)
    inputs = inputs_of(options)
    require_consistent(estimator, None)  # before data is brought for it
    launcher_hyperparameters(estimator.distribution, estimator.instance_type, groups=estimator.instance_groups or ())
    quote = quote_of(session.api, estimator)
    for line in plan_lines(estimator, inputs, hyperparameters=hyperparameters, quote=quote):
        say(line)
    with session.input_uploads() as uploads:
        estimator.fit(upload_inputs(uploads, inputs), wait=False)
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
        _bring_results(session, description, details, options=options, folder=options.output_path)
    return _exit_code(description, details, propagates=options.propagate)


def _require_sense(options: RunOptions) -> None:
    """UsageError for flags that do not go together, or do nothing without another."""
    require_sense(options)
    wanted = {"model": options.download_model, "output": options.download_output, "state": options.download_state}
    for kind, is_wanted in wanted.items():
        if is_wanted and not options.output_path:
            raise click.UsageError(f"--download_{kind} needs -o: the folder to bring it to.")
    if options.download_state and not options.checkpoint_s3_uri:
        raise click.UsageError("--download_state brings checkpoints; say where they are kept by --checkpoint_s3_uri.")


def _watch(api: Api, job: TrainingJob, *, told: Sequence[str]) -> None:
    """Show what happens to a job, less the notes that the plan has told."""
    described = job.describe()
    count = instance_count(described)
    show = Show(sys.stdout, sys.stderr, created_at=described["CreationTime"], instance_count=count)
    events = follow(api, job.name)
    show.all(event for event in events if not isinstance(event, Noted) or event.text not in told)


def _bring_results(
    session: Session, description: Description, details: Details, *, options: RunOptions, folder: Path
) -> None:
    """Logs always; the model, the output and the checkpoints as asked for, or the first two where nothing is."""
    api = session.api
    _write_logs(api, description["TrainingJobName"], folder / "logs")
    wanted = {"model": options.download_model, "output": options.download_output}
    is_any_asked = options.download_state or any(wanted.values())
    # Not what lies under the name of the job, which may be left of an earlier one of that name.
    stored = {artifact["Kind"]: parse_s3_uri(artifact["S3Uri"], account="") for artifact in details["Artifacts"]}
    for kind, is_asked in wanted.items():
        if kind in stored and (is_asked or not is_any_asked):
            where = stored[kind]
            download_object(api, folder / kind / f"{kind}.tar.gz", bucket=where.bucket.name, key=where.key)
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
