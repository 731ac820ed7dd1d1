"""`trainyard engines`: what runs the jobs of a yard, and which runs which."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from trainyard.cli.choosing import ChoosingGroup
from trainyard.cli.console import Command, home_option, json_option, print_json, say, size
from trainyard.cli.jobs import calls, plain
from trainyard.cli.script import INSTANCE_TYPE
from trainyard.foundation.engine_names import ENGINE_TAG
from trainyard.showing import inert

Engine = Mapping[str, Any]  # as ListEngines tells of one

_WIDTH = 32


@click.group(
    cls=ChoosingGroup,
    usual="ls",
    short_help="Show what runs jobs, and which engine runs which.",
    examples=(
        "trainyard engines                                 what each can do, and the machines it has",
        "trainyard engines rules                           which jobs go where",
        "trainyard engines check --it ml.p4d.24xlarge      where a job would go, and why",
    ),
)
def engines() -> None:
    """Show what runs the jobs of a yard, and which runs which; without a further word it is `ls`."""


@engines.command(cls=Command, examples=("trainyard engines", "trainyard engines ls --json | jq '.Engines[].Name'"))
@home_option
@json_option
def ls(folder: Path | None, as_json: bool) -> None:
    """List the engines: what each can do for jobs and why not, and the machines it has now."""
    with calls(folder) as api:
        found = api.call("trainyard", "ListEngines")
    if as_json:
        print_json(plain(found))
        return
    for number, engine in enumerate(found["Engines"]):
        for line in engine_lines(engine, is_first=not number):
            click.echo(line)


@engines.command(cls=Command, examples=("trainyard engines rules", "trainyard engines rules --json"))
@home_option
@json_option
def rules(folder: Path | None, as_json: bool) -> None:
    """List the rules of engines.toml in the home folder; the first that holds for a job chooses its engine."""
    with calls(folder) as api:
        found = api.call("trainyard", "ListEngines")
    if as_json:
        print_json(plain({"Rules": found["Rules"], "RulesProblem": found.get("RulesProblem")}))
        return
    for line in rule_lines(found):
        click.echo(line)


@engines.command(
    cls=Command,
    examples=(
        "trainyard engines check --it ml.p4d.24xlarge",
        "trainyard engines check --image my-algorithm:1 --tag team vision",
    ),
)
@click.option("--it", "instance_type", metavar="TYPE", default=INSTANCE_TYPE, show_default=True, help="Instance type.")
@click.option("--image", metavar="IMAGE", default="pytorch-training:latest", show_default=True, help="Image.")
@click.option("--tag", nargs=2, metavar="KEY VALUE", multiple=True, help="A tag of the job.")
@home_option
@json_option
def check(instance_type: str, image: str, tag: tuple[tuple[str, str], ...], folder: Path | None, as_json: bool) -> None:
    """Tell which engine a job would get, and why."""
    tags = [{"Key": key, "Value": value} for key, value in tag]
    with calls(folder) as api:
        quote = api.call("trainyard", "QuoteJob", InstanceType=instance_type, InstanceCount=1, Image=image, Tags=tags)
    if as_json:
        print_json({"Engine": quote["Engine"], "EngineReason": quote["EngineReason"]})
        return
    click.echo(quote["Engine"])
    say(f"The job goes there because {inert(quote['EngineReason'])}.")


def engine_lines(engine: Engine, *, is_first: bool) -> Iterator[str]:
    """One engine, with a line for each thing it can or cannot do and for each machine."""
    yield f"{engine['Name']} (the default)" if is_first else engine["Name"]
    for capability in engine["Capabilities"]:
        why_not = capability.get("Reason")
        yield f"  {'no ' if why_not else 'yes'}  {capability['Name']:<{_WIDTH}}{inert(why_not or '')}".rstrip()
    if obstacle := engine.get("Obstacle"):
        yield f"  its jobs wait: {inert(obstacle)}"
    elif not engine["Nodes"]:
        yield "  its jobs wait: it has no machine now"
    yield from map(_node_line, engine["Nodes"])


def rule_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The rules as people read them, or that there are none."""
    if problem := found.get("RulesProblem"):
        yield inert(problem)
        return
    first = found["Engines"][0]["Name"]
    for number, rule in enumerate(found["Rules"], 1):
        missing = "" if rule["Known"] else "  (this yard does not have it: such jobs are refused)"
        yield f"{number:>3}  {rule['Engine']:<12}{inert(' and '.join(rule['Conditions']) or 'every job')}{missing}"
    yield f"  -  {first:<12}{'any other job' if found['Rules'] else 'every job'}, unless its tag {ENGINE_TAG} names one"


def _node_line(node: Mapping[str, Any]) -> str:
    has = f"{node['Slots']} slots, {node['Cpus']:g} cores, {size(node['MemoryBytes'])} memory"
    gpus = f", {len(node['Gpus'])} GPUs" if node["Gpus"] else ""
    return f"  {inert(node['Name']) or 'this machine'}: {has}{gpus}{', spot' if node['Spot'] else ''}"
