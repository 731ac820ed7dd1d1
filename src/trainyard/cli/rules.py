"""`trainyard rules`: the rules that there are, how those of a job stand, and how others would."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainyard.cli.choosing import ChoosingGroup
from trainyard.cli.console import Command, home_option, json_option, print_json, say
from trainyard.cli.failure import ExitCode, Failure
from trainyard.cli.jobs import calls, find_job, job_argument, plain
from trainyard.connection import Api
from trainyard.owned_buckets import buckets_of_job
from trainyard.showing import inert
from trainyard.training_job import TrainingJob

if TYPE_CHECKING:
    from trainyard.trial import Trial

_FOUND = "IssuesFound"


@click.group(
    cls=ChoosingGroup,
    usual="show",
    short_help="Show rules, how those of a job stand, and judge a run again.",
    examples=(
        "trainyard rules                                 all built-in rules with their parameters",
        "trainyard rules @last                           how those of a job stand, and what they found",
        "trainyard rules replay @last --rule LossSpike   would this one have found something?",
    ),
)
def rules() -> None:
    """Show the rules that judge training jobs, how those of a job stand, and how others would have stood."""


@rules.command(cls=Command, examples=("trainyard rules show", "trainyard rules show @last --json"))
@click.argument("job", metavar="[JOB]", required=False)
@home_option
@json_option
def show(job: str | None, folder: Path | None, as_json: bool) -> int:
    """List the built-in rules or, given a JOB, show how its rules stand. Exit code 1 when one has found something."""
    if job is None:
        _show_known(as_json=as_json)
        return ExitCode.OK
    with calls(folder) as api:
        name = find_job(api, job)["TrainingJobName"]
        found = TrainingJob(api, name).details()["Rules"]
    if not found:
        say(f"{name} has no rules.")
    return _tell(name, found, as_json=as_json)


@rules.command(
    cls=Command,
    examples=(
        "trainyard rules replay @last                                       with the rules that it had",
        "trainyard rules replay @last --rule VanishingGradient --parameter threshold=1e-6",
        "trainyard rules replay @last --rule Overfit --parameter defaults=advised",
    ),
)
@job_argument
@click.option("--rule", "words", metavar="NAME", multiple=True, help="A built-in rule; may be given several times.")
@click.option(
    "--parameter", "given", metavar="NAME=VALUE", multiple=True, help="Of the rules; may be given several times."
)
@home_option
@json_option
def replay(job: str, words: tuple[str, ...], given: tuple[str, ...], folder: Path | None, as_json: bool) -> int:
    """Judge what JOB left of its tensors again, here and now. Exit code 1 when a rule finds something.

    A run is judged by the statistics of all its steps, and by raw values where it saved them.
    """
    from trainyard.judging import AskedRule, asked_rules, judge_again, parsed_parameters, standing

    with calls(folder) as api:
        description = find_job(api, job)
        own, parameters = asked_rules(description), parsed_parameters(given)
        chosen = {word: AskedRule(word, parameters) for word in words} or {
            name: AskedRule(asked.word, {**asked.parameters, **parameters}) for name, asked in own.items()
        }
        if not chosen:
            raise Failure(f"{description['TrainingJobName']} has no built-in rules; name some with --rule.")
        found = [standing(each) for each in judge_again(trial_of(api, description), chosen)]
    return _tell(description["TrainingJobName"], found, as_json=as_json)


def trial_of(api: Api, description: Mapping[str, Any]) -> "Trial":
    """The tensors that a job left, or leaves."""
    from trainyard.trial import create_trial

    name = description["TrainingJobName"]
    if "DebugHookConfig" not in description:
        raise Failure(
            f"{name} captured no tensors.",
            why="It was made without a DebugHookConfig.",
            next_step="give the estimator a debugger_hook_config, or rules",
            code=ExitCode.NOT_FOUND,
        )
    place = f"{description['DebugHookConfig']['S3OutputPath'].rstrip('/')}/{name}/debug-output"
    return create_trial(place, api=buckets_of_job(api, description))


def standing_lines(rules: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """How rules stand, each with what it found and what was done about it."""
    width = max((len(rule["Name"]) for rule in rules), default=0)
    for rule in rules:
        judged = f"{rule['StepsJudged']} steps judged"
        dropped = f", {rule['StepsDropped']} dropped" if rule["StepsDropped"] else ""
        yield f"{inert(rule['Name']):<{width}}  {rule['Status']:<13}  {judged}{dropped}"
        if rule.get("Details") and not rule["Findings"]:
            yield f"  {inert(rule['Details'])}"
        yield from (f"  {line}" for finding in rule["Findings"] for line in _finding(finding))
        yield from (f"  {_action(action)}" for action in rule["Actions"])


def _tell(name: str, found: Sequence[Mapping[str, Any]], *, as_json: bool) -> ExitCode:
    if as_json:
        print_json(plain({"TrainingJobName": name, "Rules": list(found)}))
    for line in () if as_json else standing_lines(found):
        click.echo(line)
    return ExitCode.FAILED if any(rule["Status"] == _FOUND for rule in found) else ExitCode.OK


def _finding(finding: Mapping[str, Any]) -> Iterator[str]:
    where = [f"step {finding['Step']}"] if finding.get("Step") is not None else []
    where += [str(finding[member]) for member in ("Mode", "Worker") if finding.get(member)]
    yield inert(f"{', '.join(where)}: {finding['Message']}" if where else finding["Message"])


def _action(action: Mapping[str, Any]) -> str:
    to = f" {action['Endpoint']}" if action.get("Endpoint") else ""
    tries = f" after {action['Tries']} tries" if action["Tries"] > 1 else ""
    told = f": {action['Told']}" if action.get("Told") else ""
    return inert(f"{action['Name']}{to} is {action['Status']}{tries}{told}")


def _show_known(*, as_json: bool) -> None:
    from dataclasses import asdict

    from trainyard.judging import known_rules

    known = known_rules()
    if as_json:
        print_json({"rules": [asdict(rule) for rule in known]})
        return
    for rule in known:
        click.echo(f"{rule.name}: {rule.about}")
        for parameter in rule.parameters:
            advised = f" (advised {parameter.advised})" if parameter.advised != parameter.default else ""
            click.echo(f"  {parameter.name:<28} {parameter.default}{advised}")
