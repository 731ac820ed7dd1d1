"""`trainyard rules`: list the built-in rules, show the rules of a job, and evaluate other rules on a job."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainyard._sdk.connection import Api
from trainyard._sdk.storage.bucket_owner import api_for_job_buckets
from trainyard._sdk.training.console import terminal_safe
from trainyard._sdk.training.job import TrainingJobHandle
from trainyard.cli.completion.values import complete_jobs, complete_rules
from trainyard.cli.jobs.lookup import find_job, job_argument, open_api, to_json
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    DefaultCommandGroup,
    json_option,
    say,
    yard_option,
)
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, pascal_case_keys, print_json

if TYPE_CHECKING:
    from trainyard.trial import Trial

_FOUND = "IssuesFound"


@click.group(
    cls=DefaultCommandGroup,
    default="show",
    examples=(
        "trainyard rules                                 all built-in rules with their parameters",
        "trainyard rules @last                           the rules of a job and their findings",
        "trainyard rules replay @last --rule LossSpike   would this rule have found an issue?",
    ),
)
def rules() -> None:
    """Show the built-in debugger rules, the rules of a job and their findings, and evaluate rules again."""


@rules.command(cls=CommandWithExamples, examples=("trainyard rules show", "trainyard rules show @last --json"))
@click.argument("job", metavar="[JOB]", required=False, shell_complete=complete_jobs)
@yard_option
@json_option
def show(job: str | None, folder: Path | None, as_json: JsonFields | None) -> int:
    """List the built-in rules or, given a JOB, its rules and their findings. Exit code 1 if a rule found an issue."""
    if job is None:
        _print_built_in_rules(as_json=as_json)
        return ExitCode.OK
    with open_api(folder) as api:
        name = find_job(api, job)["TrainingJobName"]
        found = TrainingJobHandle(api, name).details()["Rules"]
    if not found:
        say(f"{name} has no rules.")
    return _print_rules(name, found, as_json=as_json)


@rules.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard rules replay @last                                       with its own rules",
        "trainyard rules replay @last --rule VanishingGradient --parameter threshold=1e-6",
        "trainyard rules replay @last --rule Overfit --parameter defaults=advised",
    ),
)
@job_argument
@click.option(
    "--rule",
    "words",
    metavar="NAME",
    multiple=True,
    shell_complete=complete_rules,
    help="A built-in rule. Can be given several times.",
)
@click.option(
    "--parameter",
    "given",
    metavar="NAME=VALUE",
    multiple=True,
    help="A parameter of the rules. Can be given several times.",
)
@yard_option
@json_option
def replay(
    job: str, words: tuple[str, ...], given: tuple[str, ...], folder: Path | None, as_json: JsonFields | None
) -> int:
    """Evaluate rules on the captured tensors of JOB, on this machine. Exit code 1 if a rule finds an issue.

    The rules use the statistics of all captured steps, and raw values where the job saved them.
    """
    from trainyard._sdk.training.rule_run import (
        RequestedRule,
        evaluate_rules,
        parse_parameters,
        rule_state,
        rules_of_job,
    )

    with open_api(folder) as api:
        description = find_job(api, job)
        own, parameters = rules_of_job(description), parse_parameters(given)
        chosen = {word: RequestedRule(word, parameters) for word in words} or {
            name: RequestedRule(rule.word, {**rule.parameters, **parameters}) for name, rule in own.items()
        }
        if not chosen:
            raise Failure(f"{description['TrainingJobName']} has no built-in rules; name some with --rule.")
        found = [rule_state(each) for each in evaluate_rules(trial_of(api, description), chosen)]
    return _print_rules(description["TrainingJobName"], found, as_json=as_json)


def trial_of(api: Api, description: Mapping[str, Any]) -> "Trial":
    """Return the trial with the captured tensors of a job."""
    from trainyard.trial import create_trial

    name = description["TrainingJobName"]
    if "DebugHookConfig" not in description:
        raise Failure(
            f"{name} captured no tensors.",
            why="It was created without a DebugHookConfig.",
            next_step="set debugger_hook_config or rules on the estimator",
            code=ExitCode.NOT_FOUND,
        )
    uri = f"{description['DebugHookConfig']['S3OutputPath'].rstrip('/')}/{name}/debug-output"
    return create_trial(uri, api=api_for_job_buckets(api, description))


def rule_lines(rules: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the state of each rule, with its findings and actions."""
    width = max((len(rule["Name"]) for rule in rules), default=0)
    for rule in rules:
        steps = f"{rule['StepsJudged']} steps evaluated"
        dropped = f", {rule['StepsDropped']} dropped" if rule["StepsDropped"] else ""
        yield f"{terminal_safe(rule['Name']):<{width}}  {rule['Status']:<13}  {steps}{dropped}"
        if rule.get("Details") and not rule["Findings"]:
            yield f"  {terminal_safe(rule['Details'])}"
        yield from (f"  {line}" for finding in rule["Findings"] for line in _finding(finding))
        yield from (f"  {_action(action)}" for action in rule["Actions"])


def _print_rules(name: str, found: Sequence[Mapping[str, Any]], *, as_json: JsonFields | None) -> ExitCode:
    if as_json:
        print_json(to_json({"TrainingJobName": name, "Rules": list(found)}), as_json, items="Rules")
    for line in () if as_json else rule_lines(found):
        click.echo(line)
    return ExitCode.FAILED if any(rule["Status"] == _FOUND for rule in found) else ExitCode.OK


def _finding(finding: Mapping[str, Any]) -> Iterator[str]:
    where = [f"step {finding['Step']}"] if finding.get("Step") is not None else []
    where += [str(finding[member]) for member in ("Mode", "Worker") if finding.get(member)]
    yield terminal_safe(f"{', '.join(where)}: {finding['Message']}" if where else finding["Message"])


def _action(action: Mapping[str, Any]) -> str:
    to = f" {action['Endpoint']}" if action.get("Endpoint") else ""
    tries = f" after {action['Tries']} tries" if action["Tries"] > 1 else ""
    response = f": {action['Told']}" if action.get("Told") else ""
    return terminal_safe(f"{action['Name']}{to} is {action['Status']}{tries}{response}")


def _print_built_in_rules(*, as_json: JsonFields | None) -> None:
    from dataclasses import asdict

    from trainyard._sdk.training.rule_run import built_in_rules

    known = built_in_rules()
    if as_json:
        print_json({"Rules": [pascal_case_keys(asdict(rule)) for rule in known]}, as_json, items="Rules")
        return
    for rule in known:
        click.echo(f"{rule.name}: {rule.about}")
        for parameter in rule.parameters:
            advised = f" (advised {parameter.advised})" if parameter.advised != parameter.default else ""
            click.echo(f"  {parameter.name:<28} {parameter.default}{advised}")
