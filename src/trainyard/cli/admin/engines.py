"""`trainyard engines`: list the engines of a yard, and the rules that choose one for a job."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from trainyard._sdk.training.console import terminal_safe
from trainyard.cli.completion.values import complete_images, complete_instance_types
from trainyard.cli.jobs.lookup import open_api, to_json
from trainyard.cli.run.script import INSTANCE_TYPE
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    DefaultCommandGroup,
    json_option,
    say,
    size_text,
    yard_option,
)
from trainyard.cli.terminal.failure import Failure
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.terminal.tables import Row, print_table
from trainyard.foundation.engine_names import ENGINE_TAG

# An engine in the response of ListEngines.
Engine = Mapping[str, Any]

_NAME_WIDTH = 32


@click.group(
    cls=DefaultCommandGroup,
    default="ls",
    examples=(
        "trainyard engines                                 the capabilities and machines of each engine",
        "trainyard engines rules                           the rules that choose the engine of a job",
        "trainyard engines check --it ml.p4d.24xlarge      the engine that a job would get, and why",
    ),
)
def engines() -> None:
    """Show the engines of a yard, and the rules that choose one for a job. The default command is `ls`."""


@engines.command(
    cls=CommandWithExamples, examples=("trainyard engines", "trainyard engines ls --json | jq '.Engines[].Name'")
)
@yard_option
@json_option
def ls(folder: Path | None, as_json: JsonFields | None) -> None:
    """List the engines with their capabilities and machines."""
    with open_api(folder) as api:
        found = api.call("trainyard", "ListEngines")
    if as_json:
        print_json(to_json(found), as_json, items="Engines")
        return
    for number, engine in enumerate(found["Engines"]):
        for line in engine_lines(engine, is_first=not number):
            click.echo(line)


@engines.command(cls=CommandWithExamples, examples=("trainyard engines rules", "trainyard engines rules --json"))
@yard_option
@json_option
def rules(folder: Path | None, as_json: JsonFields | None) -> None:
    """List the rules of engines.toml in the home folder. The first rule that matches a job chooses its engine."""
    with open_api(folder) as api:
        found = api.call("trainyard", "ListEngines")
    if as_json:
        document = to_json({"Rules": found["Rules"], "RulesProblem": found.get("RulesProblem")})
        print_json(document, as_json, items="Rules")
        return
    if problem := found.get("RulesProblem"):
        raise Failure(problem)
    print_table(("rule", "engine", "jobs"), list(engine_rule_rows(found)))


@engines.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard engines check --it ml.p4d.24xlarge",
        "trainyard engines check --image my-algorithm:1 --tag team vision",
    ),
)
@click.option(
    "--it",
    "instance_type",
    metavar="TYPE",
    default=INSTANCE_TYPE,
    show_default=True,
    shell_complete=complete_instance_types,
    help="Instance type.",
)
@click.option(
    "--image",
    metavar="IMAGE",
    default="pytorch-training:latest",
    show_default=True,
    shell_complete=complete_images,
    help="Image.",
)
@click.option("--tag", nargs=2, metavar="KEY VALUE", multiple=True, help="A tag of the job.")
@yard_option
@json_option
def check(
    instance_type: str, image: str, tag: tuple[tuple[str, str], ...], folder: Path | None, as_json: JsonFields | None
) -> None:
    """Show which engine a job would get, and why."""
    tags = [{"Key": key, "Value": value} for key, value in tag]
    with open_api(folder) as api:
        quote = api.call("trainyard", "QuoteJob", InstanceType=instance_type, InstanceCount=1, Image=image, Tags=tags)
    if as_json:
        print_json({"Engine": quote["Engine"], "EngineReason": quote["EngineReason"]}, as_json)
        return
    click.echo(quote["Engine"])
    say(f"The job runs there because {terminal_safe(quote['EngineReason'])}.")


def engine_lines(engine: Engine, *, is_first: bool) -> Iterator[str]:
    """Yield the name of an engine, then a line for each capability and for each machine."""
    yield f"{engine['Name']} (the default)" if is_first else engine["Name"]
    for capability in engine["Capabilities"]:
        reason = terminal_safe(capability.get("Reason") or "")
        yield f"  {'no ' if reason else 'yes'}  {capability['Name']:<{_NAME_WIDTH}}{reason}".rstrip()
    if obstacle := engine.get("Obstacle"):
        yield f"  its jobs are waiting: {terminal_safe(obstacle)}"
    elif not engine["Nodes"]:
        yield "  its jobs are waiting: it has no machines at the moment"
    yield from map(_node_line, engine["Nodes"])


def engine_rule_rows(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield a row for each rule, and one for the jobs that no rule matches."""
    first = found["Engines"][0]["Name"]
    for number, rule in enumerate(found["Rules"], 1):
        missing = "" if rule["Known"] else "  (this yard does not have the engine and rejects such jobs)"
        yield str(number), rule["Engine"], f"{' and '.join(rule['Conditions']) or 'every job'}{missing}"
    jobs = "any other job" if found["Rules"] else "every job"
    yield "-", first, f"{jobs}, unless its tag {ENGINE_TAG} names an engine"


def _node_line(node: Mapping[str, Any]) -> str:
    resources = f"{node['Slots']} slots, {node['Cpus']:g} cores, {size_text(node['MemoryBytes'])} memory"
    gpus = f", {len(node['Gpus'])} GPUs" if node["Gpus"] else ""
    return f"  {terminal_safe(node['Name']) or 'this machine'}: {resources}{gpus}{', spot' if node['Spot'] else ''}"
