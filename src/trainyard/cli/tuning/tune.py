"""`trainyard tune`: tune the hyperparameters of a script, and show the results."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.training.job import TrainingJobHandle, hyperparameter
from trainyard._sdk.training.outcomes import model_uri
from trainyard._sdk.training.stream import FINAL, Description
from trainyard._sdk.tuning.job import TuningJobHandle
from trainyard._sdk.tuning.text import aim_of, best_lines, details_lines, summary, value_of
from trainyard.cli.completion.values import complete_studies
from trainyard.cli.jobs.lookup import open_api, to_json
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    DefaultCommandGroup,
    json_option,
    result_option,
    say,
    yard_option,
)
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.terminal.progress import spinner
from trainyard.cli.terminal.tables import Column, Row, print_table
from trainyard.cli.tuning.import_jobs import adopt
from trainyard.cli.tuning.start import start
from trainyard.cli.tuning.studies import find_study, studies, trial_table
from trainyard.cli.tuning.watch import watch_study

_STUDY_COLUMNS = ("study", "status", "created", "strategy", Column("trials with an objective", "right"))

study_argument = click.argument("study", metavar="STUDY", shell_complete=complete_studies)


@click.group(
    cls=DefaultCommandGroup,
    default="start",
    examples=(
        "trainyard tune train.py --range lr=log:1e-5..1e-1 --objective val_loss --minimize",
        "trainyard tune show @last          all trials; the best is marked",
        "trainyard tune best @last          the hyperparameters and the model",
        "trainyard tune plot @last -o study.html",
    ),
)
def tune() -> None:
    """Search for the best hyperparameters of a script, and show the results.

    A STUDY is a tuning job: its name, a prefix of its name, or @last.
    """


tune.add_command(start)


@tune.command(cls=CommandWithExamples, examples=("trainyard tune ls", "trainyard tune ls -n 100 --json"))
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of tuning jobs."
)
@yard_option
@json_option
def ls(limit: int, folder: Path | None, as_json: JsonFields | None) -> None:
    """List tuning jobs, newest first."""
    with open_api(folder) as api:
        found = list(studies(api, limit=limit))
    if as_json:
        print_json({"Studies": to_json(found)}, as_json, items="Studies")
        return
    if not found:
        say("There are no tuning jobs; `trainyard tune SCRIPT` starts one.")
        return
    print_table(_STUDY_COLUMNS, [_study_row(study) for study in found])


@tune.command(
    cls=CommandWithExamples, examples=("trainyard tune show @last", "trainyard tune show @last --sort value --json")
)
@study_argument
@click.option(
    "--sort",
    type=click.Choice(["number", "value"]),
    default="number",
    show_default=True,
    help="Order of the trials: by number, or the best first.",
)
@yard_option
@json_option
def show(study: str, sort: str, folder: Path | None, as_json: JsonFields | None) -> None:
    """Show the status of STUDY and its trials."""
    with open_api(folder) as api:
        job = find_study(api, study)
        description, details, trials = job.describe(), job.details(), job.trials()
    if as_json:
        print_json(to_json({**description, "TrainingJobSummaries": trials, "Details": details}), as_json)
        return
    click.echo(summary(description))
    for line in details_lines(details):
        click.echo(line)
    click.echo()
    numbered = list(enumerate(trials, start=1))
    if sort == "value":
        numbered.sort(key=lambda each: _rank(each[1], description))
    best = description.get("BestTrainingJob", {}).get("TrainingJobName", "")
    table = trial_table(numbered, metric=aim_of(description).metric, best=best, now=datetime.now(UTC))
    print_table(table.columns, table.rows)


@tune.command(cls=CommandWithExamples, examples=("trainyard tune watch @last",))
@study_argument
@yard_option
def watch(study: str, folder: Path | None) -> int:
    """Watch STUDY until it has ended. q or Ctrl-C quits and leaves the study running."""
    with open_api(folder) as api:
        return watch_study(find_study(api, study))


@tune.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard tune best @last",
        "trainyard tune best @last --arguments     as arguments for `trainyard run SCRIPT --`",
    ),
)
@study_argument
@click.option("--arguments", is_flag=True, help="Print only the tuned hyperparameters, as arguments of a script.")
@yard_option
@json_option
def best(study: str, arguments: bool, folder: Path | None, as_json: JsonFields | None) -> None:
    """Show the best trial of STUDY: its hyperparameters, its objective value and its model."""
    with open_api(folder) as api:
        description = find_study(api, study).describe()
        found = _best_of(description)
        details = TrainingJobHandle(api, found["TrainingJobName"]).details()
    tuned: Mapping[str, str] = found["TunedHyperParameters"]
    if arguments:
        click.echo(" ".join(f"--{name} {hyperparameter(text)}" for name, text in sorted(tuned.items())))
        return
    if as_json:
        print_json(to_json({**found, "ModelUri": model_uri(details)}), as_json)
        return
    for line in best_lines(found, aim_of(description).metric):
        click.echo(line)
    click.echo(f"model: {model_uri(details) or 'none was saved'}")


@tune.command(cls=CommandWithExamples, examples=("trainyard tune stop @last", "trainyard tune stop @last --wait"))
@study_argument
@click.option("--wait", is_flag=True, help="Wait until the study has ended.")
@yard_option
@result_option("HyperParameterTuningJobName", "HyperParameterTuningJobStatus")
def stop(study: str, wait: bool, folder: Path | None, as_json: JsonFields | None) -> None:
    """Stop STUDY and its running trials. The results are kept."""
    with open_api(folder) as api:
        job = find_study(api, study)
        status = job.describe()["HyperParameterTuningJobStatus"]
        if status in FINAL:
            outcome = f'Tuning job "{job.name}" is already {status}.'
        else:
            job.stop()
            outcome = f'Tuning job "{job.name}" is stopping.'
            if wait:
                with spinner("Stopping the study"):
                    for _ in job.ended_trials():
                        pass
                outcome = summary(job.describe())
        if as_json:
            _print_status(job, as_json)
        else:
            say(outcome)


@tune.command(cls=CommandWithExamples, examples=("trainyard tune rm @last",))
@study_argument
@yard_option
@result_option("HyperParameterTuningJobName", "HyperParameterTuningJobStatus")
def rm(study: str, folder: Path | None, as_json: JsonFields | None) -> None:
    """Remove STUDY, which must have ended. Its training jobs are kept."""
    with open_api(folder) as api:
        job = find_study(api, study)
        status = job.describe()["HyperParameterTuningJobStatus"]
        if status not in FINAL:
            raise Failure(
                f'Tuning job "{job.name}" is {status}; only ended tuning jobs can be removed.',
                next_step=f"trainyard tune stop {job.name} --wait",
            )
        api.call("sagemaker", "DeleteHyperParameterTuningJob", HyperParameterTuningJobName=job.name)
    if as_json:
        print_json({"HyperParameterTuningJobName": job.name, "HyperParameterTuningJobStatus": status}, as_json)
    else:
        say(f'Removed tuning job "{job.name}"; its training jobs are kept.')


@tune.command(cls=CommandWithExamples, examples=("trainyard tune plot @last -o study.html",))
@study_argument
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write. Default: STUDY.html in the current folder.",
)
@yard_option
@result_option("HyperParameterTuningJobName", "File")
def plot(study: str, output: Path | None, folder: Path | None, as_json: JsonFields | None) -> None:
    """Write charts of STUDY to a self-contained HTML page. Needs Bokeh: trainyard[plots]."""
    from trainyard._sdk.tuning.plots import Plots
    from trainyard.analytics import HyperparameterTuningJobAnalytics
    from trainyard.session import Session

    with open_api(folder) as api:
        name = find_study(api, study).name
        path = output or Path(f"{name}.html")
        Plots.of(HyperparameterTuningJobAnalytics(name, Session(api=api))).save(path)
    if as_json:
        print_json({"HyperParameterTuningJobName": name, "File": str(path)}, as_json)
    else:
        say(f"Wrote the charts to {path}.")


tune.add_command(adopt)


def _print_status(job: TuningJobHandle, as_json: JsonFields) -> None:
    members = ("HyperParameterTuningJobName", "HyperParameterTuningJobStatus")
    found = job.describe()
    print_json({name: found[name] for name in members}, as_json)


def _best_of(description: Description) -> Description:
    if "BestTrainingJob" not in description:
        name, status = description["HyperParameterTuningJobName"], description["HyperParameterTuningJobStatus"]
        raise Failure(
            f'Tuning job "{name}" is {status} and has no best trial.',
            why="No trial has reported the objective yet.",
            next_step=f"trainyard tune show {name}",
            code=ExitCode.NOT_FOUND,
        )
    found: Description = description["BestTrainingJob"]
    return found


def _rank(trial: Description, description: Description) -> tuple[bool, float]:
    """Return a sort key that puts the best trial first, and trials without a value last."""
    value = value_of(trial)
    if value is None:
        return True, 0.0
    return False, -value if aim_of(description).is_maximized else value


def _study_row(study: Mapping[str, Any]) -> Row:
    succeeded = study["ObjectiveStatusCounters"].get("Succeeded", 0)
    created: datetime = study["CreationTime"].astimezone()
    name, status = study["HyperParameterTuningJobName"], study["HyperParameterTuningJobStatus"]
    return name, status, f"{created:%Y-%m-%d %H:%M:%S}", study["Strategy"], str(succeeded)
