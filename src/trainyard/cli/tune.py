"""`trainyard tune`: search the hyperparameters of a script, and look at what was found."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trainyard.cli.choosing import ChoosingGroup
from trainyard.cli.console import Command, home_option, json_option, print_json, say
from trainyard.cli.failure import ExitCode, Failure
from trainyard.cli.jobs import calls, plain
from trainyard.cli.studies import find_study, studies, trial_table
from trainyard.cli.tune_adopt import adopt
from trainyard.cli.tune_start import start
from trainyard.cli.tune_watching import watch_study
from trainyard.following import FINAL, Description
from trainyard.outcomes import model_uri
from trainyard.training_job import TrainingJob, hyperparameter
from trainyard.tuning_text import aim_of, best_lines, details_lines, summary, value_of

study_argument = click.argument("study", metavar="STUDY")


@click.group(
    cls=ChoosingGroup,
    usual="start",
    short_help="Search the best hyperparameters of a script.",
    examples=(
        "trainyard tune train.py --range lr=log:1e-5..1e-1 --objective val_loss --minimize",
        "trainyard tune show @last          its trials, with the best marked",
        "trainyard tune best @last          the hyperparameters and the model",
        "trainyard tune plot @last -o study.html",
    ),
)
def tune() -> None:
    """Search the hyperparameters with which a script does best, and look at what was found.

    A STUDY is a tuning job by its name, by the beginning of it, or as @last.
    """


tune.add_command(start)


@tune.command(cls=Command, examples=("trainyard tune ls", "trainyard tune ls -n 100 --json"))
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many at most.")
@home_option
@json_option
def ls(limit: int, folder: Path | None, as_json: bool) -> None:
    """List the tuning jobs, the latest first."""
    with calls(folder) as api:
        found = list(studies(api, limit=limit))
    if as_json:
        print_json({"studies": plain(found)})
        return
    if not found:
        say("There is no tuning job yet; `trainyard tune SCRIPT` makes one.")
    width = max((len(study["HyperParameterTuningJobName"]) for study in found), default=0)
    for study in found:
        click.echo(_listed(study, width))


@tune.command(cls=Command, examples=("trainyard tune show @last", "trainyard tune show @last --sort value --json"))
@study_argument
@click.option(
    "--sort",
    type=click.Choice(["number", "value"]),
    default="number",
    show_default=True,
    help="By which to sort the trials: the order in which they were made, or the best first.",
)
@home_option
@json_option
def show(study: str, sort: str, folder: Path | None, as_json: bool) -> None:
    """Show how STUDY stands, and its trials."""
    with calls(folder) as api:
        job = find_study(api, study)
        description, details, trials = job.describe(), job.details(), job.trials()
    if as_json:
        print_json(plain({**description, "TrainingJobSummaries": trials, "Details": details}))
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


@tune.command(cls=Command, examples=("trainyard tune watch @last",))
@study_argument
@home_option
def watch(study: str, folder: Path | None) -> int:
    """Watch STUDY until it has ended; q or Ctrl-C leaves it running."""
    with calls(folder) as api:
        return watch_study(find_study(api, study))


@tune.command(
    cls=Command,
    examples=(
        "trainyard tune best @last",
        "trainyard tune best @last --arguments     as arguments for `trainyard run SCRIPT --`",
    ),
)
@study_argument
@click.option("--arguments", is_flag=True, help="Print the tuned hyperparameters alone, as words for a script.")
@home_option
@json_option
def best(study: str, arguments: bool, folder: Path | None, as_json: bool) -> None:
    """Show the best trial of STUDY: its hyperparameters, what it came to, and where its model is."""
    with calls(folder) as api:
        description = find_study(api, study).describe()
        found = _best_of(description)
        details = TrainingJob(api, found["TrainingJobName"]).details()
    tuned: Mapping[str, str] = found["TunedHyperParameters"]
    if arguments:
        click.echo(" ".join(f"--{name} {hyperparameter(text)}" for name, text in sorted(tuned.items())))
        return
    if as_json:
        print_json(plain({**found, "ModelUri": model_uri(details)}))
        return
    for line in best_lines(found, aim_of(description).metric):
        click.echo(line)
    click.echo(f"model: {model_uri(details) or 'none was saved'}")


@tune.command(cls=Command, examples=("trainyard tune stop @last", "trainyard tune stop @last --wait"))
@study_argument
@click.option("--wait", is_flag=True, help="Return when it has ended.")
@home_option
def stop(study: str, wait: bool, folder: Path | None) -> None:
    """Stop STUDY and those of its trials that run. What was found is kept."""
    with calls(folder) as api:
        job = find_study(api, study)
        status = job.describe()["HyperParameterTuningJobStatus"]
        if status in FINAL:
            say(f'Tuning job "{job.name}" is {status} already.')
            return
        job.stop()
        if not wait:
            say(f'Tuning job "{job.name}" is stopping.')
            return
        for _ in job.ended():
            pass
        say(summary(job.describe()))


@tune.command(cls=Command, examples=("trainyard tune rm @last",))
@study_argument
@home_option
def rm(study: str, folder: Path | None) -> None:
    """Forget STUDY, which has ended. Its training jobs stay."""
    with calls(folder) as api:
        job = find_study(api, study)
        status = job.describe()["HyperParameterTuningJobStatus"]
        if status not in FINAL:
            raise Failure(
                f'Tuning job "{job.name}" is {status}; only those that have ended can be removed.',
                next_step=f"trainyard tune stop {job.name} --wait",
            )
        api.call("sagemaker", "DeleteHyperParameterTuningJob", HyperParameterTuningJobName=job.name)
        say(f'Tuning job "{job.name}" is removed; its training jobs stay.')


@tune.command(cls=Command, examples=("trainyard tune plot @last -o study.html",))
@study_argument
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write the page. Default: STUDY.html, here.",
)
@home_option
def plot(study: str, output: Path | None, folder: Path | None) -> None:
    """Draw STUDY as a page of charts that needs nothing else to be read. Needs Bokeh: trainyard[plots]."""
    from trainyard.analytics import HyperparameterTuningJobAnalytics
    from trainyard.session import Session
    from trainyard.tuning_plots import Plots

    with calls(folder) as api:
        name = find_study(api, study).name
        path = output or Path(f"{name}.html")
        Plots.of(HyperparameterTuningJobAnalytics(name, Session(api=api))).save(path)
    say(f"The charts are in {path}.")


tune.add_command(adopt)


def _best_of(description: Description) -> Description:
    if "BestTrainingJob" not in description:
        name, status = description["HyperParameterTuningJobName"], description["HyperParameterTuningJobStatus"]
        raise Failure(
            f'Tuning job "{name}" is {status} and has no best trial.',
            why="No trial has measured the objective yet.",
            next_step=f"trainyard tune show {name}",
            code=ExitCode.NOT_FOUND,
        )
    found: Description = description["BestTrainingJob"]
    return found


def _rank(trial: Description, description: Description) -> tuple[bool, float]:
    """What sorts the best first and those without a value last."""
    value = value_of(trial)
    if value is None:
        return True, 0.0
    return False, -value if aim_of(description).is_maximized else value


def _listed(study: Mapping[str, Any], width: int) -> str:
    counters = study["ObjectiveStatusCounters"]
    measured = f"{counters.get('Succeeded', 0)} measured"
    local: datetime = study["CreationTime"].astimezone()
    name, status = study["HyperParameterTuningJobName"], study["HyperParameterTuningJobStatus"]
    return f"{name:<{width}}  {status:<10}  {local:%Y-%m-%d %H:%M:%S}  {study['Strategy']:<9}  {measured}"
