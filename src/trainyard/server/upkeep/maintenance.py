"""Maintenance of a home folder: `python -m trainyard.server.upkeep.maintenance backup|restore|gc|check|images`.

Prints one JSON object: the result, or `error` and its `kind`.
"""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from trainyard.engines.container.image_build import BuildRecipe, build_image
from trainyard.engines.container.store import ImageStore
from trainyard.engines.images import Images
from trainyard.foundation.clock import utc_now
from trainyard.foundation.errors import NotFound, TrainyardError
from trainyard.foundation.home import Home
from trainyard.foundation.settings import read_settings
from trainyard.server.records.sql import open_records
from trainyard.server.settings import PREFIX, ServerSettings
from trainyard.server.upkeep.backup import back_up, restore
from trainyard.server.upkeep.checkup import check_home
from trainyard.server.upkeep.garbage import sweep
from trainyard.server.upkeep.input_garbage import sweep_inputs


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        result = COMMANDS[options.command](Home(options.home.absolute()), options)
    except TrainyardError as error:
        result = {"error": error.message, "kind": type(error).__name__}
    sys.stdout.write(json.dumps(result) + "\n")
    return 1 if "error" in result else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainyard.server.upkeep.maintenance", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in COMMANDS:
        command = commands.add_parser(name)
        command.add_argument("--home", type=Path, required=True)
        if name in ("backup", "restore"):
            command.add_argument("place", type=Path)
        elif name == "gc":
            command.add_argument("--dry-run", action="store_true")
        elif name == "images":
            command.add_argument("--map", nargs=2, metavar=("IMAGE", "PYTHON"))
            command.add_argument("--map-container", nargs=2, metavar=("IMAGE", "LOCAL_IMAGE"))
            command.add_argument("--unmap", metavar="IMAGE")
            command.add_argument("--build", nargs=2, metavar=("NAME", "FOLDER"))
            command.add_argument("--file", type=Path)
            command.add_argument("--option", action="append", default=[])
        else:
            command.add_argument("--thorough", action="store_true")
    return parser


def _backup(home: Home, options: argparse.Namespace) -> dict[str, Any]:
    summary = back_up(home, options.place, settings=_settings(home), now=utc_now())
    return dataclasses.asdict(summary) | {"target": str(options.place)}


def _restore(home: Home, options: argparse.Namespace) -> dict[str, Any]:
    return dataclasses.asdict(restore(home, options.place, environment=os.environ))


def _gc(home: Home, options: argparse.Namespace) -> dict[str, Any]:
    if home.check() is None:
        raise NotFound("home folder", str(home.root))
    settings = _settings(home)
    with closing(open_records(settings.records or f"sqlite:///{home.records_file}")) as records:
        swept = sweep(
            home,
            records,
            has_local_objects=not settings.objects,
            now=utc_now(),
            dry_run=options.dry_run,
            environments_limit_bytes=settings.environments_limit_bytes,
        )
        swept.append(sweep_inputs(home, records, settings=settings, now=utc_now(), dry_run=options.dry_run))
    return {"dry_run": options.dry_run, "swept": [dataclasses.asdict(garbage) for garbage in swept]}


def _check(home: Home, options: argparse.Namespace) -> dict[str, Any]:
    checks = check_home(home, _settings(home), now=utc_now(), thorough=options.thorough)
    return {"checks": [dataclasses.asdict(check) for check in checks]}


def _images(home: Home, options: argparse.Namespace) -> dict[str, Any]:
    if home.check() is None:
        raise NotFound("home folder", str(home.root))
    images = Images(home.images_file)
    if options.map:
        images.map(*options.map)
    if options.map_container:
        image, local = options.map_container
        images.map_container(image, _containers(home).full_name(local))
    if options.unmap:
        images.unmap(options.unmap)
    if options.build:
        name, folder = options.build
        recipe = BuildRecipe.find(Path(folder), file=options.file, options=options.option)
        return {"built": build_image(name, recipe, images=images, store=_containers(home))}
    return {"images": images.mappings()}


def _containers(home: Home) -> ImageStore:
    return ImageStore(_settings(home).container_tool)


def _settings(home: Home) -> ServerSettings:
    return read_settings(ServerSettings, file=home.settings_file, environment=os.environ, prefix=PREFIX)


COMMANDS = {"backup": _backup, "restore": _restore, "gc": _gc, "check": _check, "images": _images}

if __name__ == "__main__":
    sys.exit(main())
