"""`trainyard images`: which Python stands for an image, since jobs run without a container engine."""

from pathlib import Path

import click

from trainyard.cli.console import Command, chosen_home, home_option, json_option, print_json, say
from trainyard.cli.maintenance import maintain


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def images() -> None:
    """Say which Python stands for an image."""


@images.command(cls=Command, examples=("trainyard images ls", "trainyard images ls --json"))
@home_option
@json_option
def ls(folder: Path | None, as_json: bool) -> None:
    """List the images that were mapped. Framework images that are not here stand for the yard's own Python."""
    mapped = maintain("images", chosen_home(folder))
    if as_json:
        print_json(mapped)
        return
    for image, python in mapped["images"].items():
        click.echo(f"{image:<40}  {python}")
    if not mapped["images"]:
        say("No image is mapped.")


@images.command(
    "map",
    cls=Command,
    examples=(
        "trainyard images map pytorch-training:2.6 /opt/torch26/bin/python    one version",
        "trainyard images map my-algorithm ~/envs/mine/bin/python             all versions",
    ),
)
@click.argument("image")
@click.argument("python", type=click.Path(path_type=Path))
@home_option
def map_image(image: str, python: Path, folder: Path | None) -> None:
    """Let jobs of IMAGE run on the interpreter PYTHON from now on; the registry in its name does not matter."""
    maintain("images", chosen_home(folder), "--map", image, str(python.expanduser().absolute()))
    say(f"Jobs of {image} run on {python} from now on.")


@images.command(cls=Command, examples=("trainyard images rm my-algorithm",))
@click.argument("image")
@home_option
def rm(image: str, folder: Path | None) -> None:
    """Forget what IMAGE was mapped to."""
    maintain("images", chosen_home(folder), "--unmap", image)
    say(f"{image} is no longer mapped.")
