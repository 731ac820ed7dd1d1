"""`trainyard images`: what an image stands for, a Python of this machine or a container image."""

from collections.abc import Sequence
from pathlib import Path

import click

from trainyard.cli.console import Command, chosen_home, home_option, json_option, print_json, say
from trainyard.cli.maintenance import maintain


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def images() -> None:
    """Say which Python, or which container image, stands for an image."""


@images.command(cls=Command, examples=("trainyard images ls", "trainyard images ls --json"))
@home_option
@json_option
def ls(folder: Path | None, as_json: bool) -> None:
    """List the images that were mapped. Framework images that are not here stand for the yard's own Python."""
    mapped = maintain("images", chosen_home(folder))
    if as_json:
        print_json(mapped)
        return
    for image, place in mapped["images"].items():
        click.echo(f"{image:<40}  {place}")
    if not mapped["images"]:
        say("No image is mapped.")


@images.command(
    "map",
    cls=Command,
    examples=(
        "trainyard images map pytorch-training:2.6 /opt/torch26/bin/python        one version",
        "trainyard images map my-algorithm ~/envs/mine/bin/python                 all versions",
        "trainyard images map my-algorithm:1 --container localhost/my-algorithm:1 an image that really runs",
    ),
)
@click.argument("image")
@click.argument("python", type=click.Path(path_type=Path), required=False)
@click.option("--container", metavar="LOCAL_IMAGE", help="A container image that podman or docker here have.")
@home_option
def map_image(image: str, python: Path | None, container: str | None, folder: Path | None) -> None:
    """Let jobs of IMAGE run on the interpreter PYTHON, or in a container image, from now on.

    The registry in the name does not matter.
    """
    if (python is None) == (container is None):
        raise click.UsageError("Give either PYTHON or --container, one of the two.")
    if python is not None:
        maintain("images", chosen_home(folder), "--map", image, str(python.expanduser().absolute()))
    else:
        maintain("images", chosen_home(folder), "--map-container", image, str(container))
    say(f"Jobs of {image} run {f'on {python}' if python else f'in {container}'} from now on.")


@images.command(cls=Command, examples=("trainyard images rm my-algorithm",))
@click.argument("image")
@home_option
def rm(image: str, folder: Path | None) -> None:
    """Forget what IMAGE was mapped to."""
    maintain("images", chosen_home(folder), "--unmap", image)
    say(f"{image} is no longer mapped.")


@images.command(
    cls=Command,
    examples=(
        "trainyard images build -t my-algorithm:1 .",
        "trainyard images build -t my-algorithm:1 . -- --build-arg VERSION=2 --no-cache",
    ),
)
@click.option("-t", "--tag", "name", required=True, metavar="NAME", help="What the image shall be called by jobs.")
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The Dockerfile. Default: Dockerfile or Containerfile in FOLDER.",
)
@click.argument("source", metavar="FOLDER", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("options", nargs=-1)
@home_option
def build(name: str, file: Path | None, source: Path, options: Sequence[str], folder: Path | None) -> None:
    """Build a Dockerfile with podman or docker, and let NAME stand for the image.

    What the Dockerfile begins FROM may be an image that is mapped to a container image of this machine. OPTIONS go to
    the tool's own build.
    """
    named = ["--file", str(file)] if file else []
    passed = [f"--option={option}" for option in options]
    built = maintain("images", chosen_home(folder), "--build", name, str(source), *named, *passed)["built"]
    say(f"Jobs of {name} run in {built} from now on.")
