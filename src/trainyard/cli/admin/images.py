"""`trainyard images`: map images to Python interpreters of this machine or to container images."""

from collections.abc import Sequence
from pathlib import Path

import click

from trainyard.cli.completion.values import complete_mapped_images
from trainyard.cli.terminal.console import (
    CommandGroup,
    CommandWithExamples,
    home_option,
    json_option,
    result_option,
    say,
    select_home,
)
from trainyard.cli.terminal.json_output import JsonFields, print_json
from trainyard.cli.terminal.tables import print_table
from trainyard.cli.yard.maintenance import maintain


@click.group(cls=CommandGroup)
def images() -> None:
    """Map images to Python interpreters or to container images."""


@images.command(cls=CommandWithExamples, examples=("trainyard images ls", "trainyard images ls --json"))
@home_option
@json_option
def ls(folder: Path | None, as_json: JsonFields | None) -> None:
    """List the mapped images. Other framework images use the Python of the yard."""
    mapped = maintain("images", select_home(folder))
    if as_json:
        rows = [{"Image": image, "Target": target} for image, target in mapped["images"].items()]
        print_json({"Images": rows}, as_json, items="Images")
        return
    if not mapped["images"]:
        say("No images are mapped.")
        return
    print_table(("image", "target"), list(mapped["images"].items()))


@images.command(
    "map",
    cls=CommandWithExamples,
    examples=(
        "trainyard images map pytorch-training:2.6 /opt/torch26/bin/python        one version",
        "trainyard images map my-algorithm ~/envs/mine/bin/python                 all versions",
        "trainyard images map my-algorithm:1 --container localhost/my-algorithm:1 a container image",
    ),
)
@click.argument("image")
@click.argument("python", type=click.Path(path_type=Path), required=False)
@click.option("--container", metavar="LOCAL_IMAGE", help="A local container image of podman or docker.")
@home_option
@result_option("Image", "Target")
def map_image(
    image: str, python: Path | None, container: str | None, folder: Path | None, as_json: JsonFields | None
) -> None:
    """Run jobs of IMAGE with the interpreter PYTHON, or in a container image.

    The registry in the name of the image is ignored.
    """
    if (python is None) == (container is None):
        raise click.UsageError("Give either PYTHON or --container.")
    if python is not None:
        maintain("images", select_home(folder), "--map", image, str(python.expanduser().absolute()))
    else:
        maintain("images", select_home(folder), "--map-container", image, str(container))
    if as_json:
        print_json({"Image": image, "Target": str(python.expanduser().absolute()) if python else container}, as_json)
        return
    say(f"Jobs of {image} now run {f'with {python}' if python else f'in {container}'}.")


@images.command(cls=CommandWithExamples, examples=("trainyard images rm my-algorithm",))
@click.argument("image", shell_complete=complete_mapped_images)
@home_option
@result_option("Image")
def rm(image: str, folder: Path | None, as_json: JsonFields | None) -> None:
    """Remove the mapping of IMAGE."""
    maintain("images", select_home(folder), "--unmap", image)
    if as_json:
        print_json({"Image": image}, as_json)
        return
    say(f"{image} is no longer mapped.")


@images.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard images build -t my-algorithm:1 .",
        "trainyard images build -t my-algorithm:1 . -- --build-arg VERSION=2 --no-cache",
    ),
)
@click.option("-t", "--tag", "name", required=True, metavar="NAME", help="Name of the image in jobs.")
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The Dockerfile. Default: Dockerfile or Containerfile in FOLDER.",
)
@click.argument("source", metavar="FOLDER", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("options", nargs=-1)
@home_option
@result_option("Image", "Target")
def build(
    name: str,
    file: Path | None,
    source: Path,
    options: Sequence[str],
    folder: Path | None,
    as_json: JsonFields | None,
) -> None:
    """Build a Dockerfile with podman or docker, and map NAME to the image.

    FROM can name an image that is mapped to a local container image. OPTIONS are passed to the build command of podman
    or docker.
    """
    named = ["--file", str(file)] if file else []
    passed = [f"--option={option}" for option in options]
    built = maintain("images", select_home(folder), "--build", name, str(source), *named, *passed)["built"]
    if as_json:
        print_json({"Image": name, "Target": built}, as_json)
        return
    say(f"Jobs of {name} now run in {built}.")
