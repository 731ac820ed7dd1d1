"""`trainyard init`: write a small project."""

import shlex
from pathlib import Path

import click

from trainyard.cli.run.project_file import FILE_NAME
from trainyard.cli.terminal.console import CommandWithExamples, result_option, say
from trainyard.cli.terminal.failure import Failure
from trainyard.cli.terminal.json_output import JsonFields, print_json

_STARTER = Path(__file__).with_name("starter_project")
_REQUIRED = {"train.py": "train.py", FILE_NAME: FILE_NAME}
# The file of the starter project has no dot, so that git does not apply it to this repository.
_IGNORED = {".gitignore": "gitignore"}


@click.command(
    cls=CommandWithExamples,
    examples=(
        "trainyard init my-project && cd my-project && trainyard run",
        "trainyard init                                   in the current folder",
    ),
)
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path, file_okay=False))
@result_option("Folder", "Created")
def init(folder: Path, as_json: JsonFields | None) -> None:
    """Write a small project to DIR: a script, the options of its runs in trainyard.toml, and a .gitignore.

    Existing files are never overwritten.
    """
    existing = [name for name in _REQUIRED if (folder / name).exists()]
    if existing:
        raise Failure(
            f"{folder / existing[0]} already exists, so nothing was written.",
            next_step="trainyard init DIR, with another folder",
        )
    folder.mkdir(parents=True, exist_ok=True)
    created = []
    for name, source in (_REQUIRED | _IGNORED).items():
        if (folder / name).exists():
            say(f"Kept    {folder / name}")
            continue
        (folder / name).write_bytes((_STARTER / source).read_bytes())
        created.append(name)
        say(f"Created {folder / name}")
    change = "" if folder == Path() else f"cd {shlex.quote(str(folder))} && "
    say(f"\nTo train: {change}trainyard run")
    say(f"Options are in {folder / FILE_NAME}; `trainyard run -h` lists all of them.")
    if as_json:
        print_json({"Folder": str(folder), "Created": created}, as_json)
