"""`trainyard tune`: tune the hyperparameters of a script, and show the results."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.training.job import TrainingJobHandle, hyperparameter
from trainyard._sdk.training.outcomes import model_uri
from trainyard._sdk.training.stream import FINAL, Description
from trainyard._sdk.tuning.text import aim_of, best_lines, details_lines, summary, value_of
from trainyard.cli.jobs.lookup import open_api, to_json
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    DefaultCommandGroup,
    home_option,
    json_option,
    print_json,
    say,
)
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.tuning.import_jobs import adopt
from trainyard.cli.tuning.start import start
from trainyard.cli.tuning.studies import find_study, studies, trial_table
from trainyard.cli.tuning.watch import watch_study

study_argument = click.argument("study", metavar="STUDY")


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
@home_option
@json_option
def ls(limit: int, folder: Path | None, as_json: bool) -> None:
    """List tuning jobs, newest first."""
    with open_api(folder) as api:
        found = list(studies(api, limit=limit))
    if as_json:
        print_json({"studies": to_json(found)})
        return
    if not found:
        say("There are no tuning jobs; `trainyard tune SCRIPT` starts one.")
    width = max((len(study["HyperParameterTuningJobName"]) for study in found), default=0)
    for study in found:
        click.echo(_study_line(study, width))


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
@home_option
@json_option
def show(study: str, sort: str, folder: Path | None, as_json: bool) -> None:
    """Show the status of STUDY and its trials."""
    with open_api(folder) as api:
        job = find_study(api, study)
        description, details, trials = job.describe(), job.details(), job.trials()
    if as_json:
        print_json(to_json({**description, "TrainingJobSummaries": trials, "Details": details}))
        return
    click.echo(summary(description))
    for line in details_lines(details):
        click.echo(line)
    click.echo()
    numbered = list(enumerate(trials, start=1))
    if sort == "value":
        numbered.sort(key=lambda each: _rank(each[1], description))
    best = description.get("BestTrainingJob", {}).get("TrainingJobName", "")
    for line in trial_table(numbered, metric=aim_of(description).metric, best=best, now=datetime.now(UTC)):
        click.echo(line)


@tune.command(cls=CommandWithExamples, examples=("trainyard tune watch @last",))
@study_argument
@home_option
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
@home_option
@json_option
def best(study: str, arguments: bool, folder: Path | None, as_json: bool) -> None:
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
        print_json(to_json({**found, "ModelUri": model_uri(details)}))
        return
    for line in best_lines(found, aim_of(description).metric):
        click.echo(line)
    click.echo(f"model: {model_uri(details) or 'none was saved'}")


@tune.command(cls=CommandWithExamples, examples=("trainyard tune stop @last", "trainyard tune stop @last --wait"))
@study_argument
@click.option("--wait", is_flag=True, help="Wait until the study has ended.")
@home_option
def stop(study: str, wait: bool, folder: Path | None) -> None:
    """Stop STUDY and its running trials. The results are kept."""
    with open_api(folder) as api:
        job = find_study(api, study)
        status = job.describe()["HyperParameterTuningJobStatus"]
        if status in FINAL:
            say(f'Tuning job "{job.name}" is already {status}.')
            return
        job.stop()
        if not wait:
            say(f'Tuning job "{job.name}" is stopping.')
            return
        for _ in job.ended_trials():
            pass
        say(summary(job.describe()))


@tune.command(cls=CommandWithExamples, examples=("trainyard tune rm @last",))
@study_argument
@home_option
def rm(study: str, folder: Path | None) -> None:
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
@home_option
def plot(study: str, output: Path | None, folder: Path | None) -> None:
    """Write charts of STUDY to a self-contained HTML page. Needs Bokeh: trainyard[plots]."""
    from trainyard._sdk.tuning.plots import Plots
    from trainyard.analytics import HyperparameterTuningJobAnalytics
    from trainyard.session import Session

    with open_api(folder) as api:
        name = find_study(api, study).name
        path = output or Path(f"{name}.html")
        Plots.of(HyperparameterTuningJobAnalytics(name, Session(api=api))).save(path)
    say(f"Wrote the charts to {path}.")


tune.add_command(adopt)


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


def _study_line(study: Mapping[str, Any], width: int) -> str:
    succeeded = study["ObjectiveStatusCounters"].get("Succeeded", 0)
    trials = f"{succeeded} {'trial' if succeeded == 1 else 'trials'} with an objective"
    local: datetime = study["CreationTime"].astimezone()
    name, status = study["HyperParameterTuningJobName"], study["HyperParameterTuningJobStatus"]
    return f"{name:<{width}}  {status:<10}  {local:%Y-%m-%d %H:%M:%S}  {study['Strategy']:<9}  {trials}"
