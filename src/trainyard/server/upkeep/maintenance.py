"""Maintenance of a home folder: `python -m trainyard.server.upkeep.maintenance COMMAND`, such as backup or gc.

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
from trainyard.foundation.errors import InvalidRequest, NotFound, TrainyardError
from trainyard.foundation.files import PRIVATE_FOLDER
from trainyard.foundation.home import Home
from trainyard.foundation.settings import parse_setting, read_settings, setting_values
from trainyard.foundation.settings_file import write_setting
from trainyard.objects.encryption.keyring import DATABASE
from trainyard.server.engines import require_known_engines
from trainyard.server.records.sql import open_records
from trainyard.server.settings import PREFIX, ServerSettings
from trainyard.server.upkeep.backup import back_up, restore
from trainyard.server.upkeep.checkup import check_home
from trainyard.server.upkeep.garbage import sweep
from trainyard.server.upkeep.input_garbage import sweep_inputs
from trainyard.server.upkeep.retention import remove_expired_files
from trainyard.server.upkeep.upgrade_check import check_upgrade

MAX_PORT = 65_535


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
            command.add_argument("--with-master-key", action="store_true")
        elif name == "gc":
            command.add_argument("--dry-run", action="store_true")
        elif name == "settings":
            change = command.add_mutually_exclusive_group()
            change.add_argument("--set", nargs=2, metavar=("NAME", "VALUE"))
            change.add_argument("--unset", metavar="NAME")
        elif name == "images":
            command.add_argument("--map", nargs=2, metavar=("IMAGE", "PYTHON"))
            command.add_argument("--map-container", nargs=2, metavar=("IMAGE", "LOCAL_IMAGE"))
            command.add_argument("--unmap", metavar="IMAGE")
            command.add_argument("--build", nargs=2, metavar=("NAME", "FOLDER"))
            command.add_argument("--file", type=Path)
            command.add_argument("--option", action="append", default=[])
        elif name == "check":
            command.add_argument("--thorough", action="store_true")
    return parser


def _backup(home: Home, options: argparse.Namespace) -> dict[str, Any]:
    settings, now = _settings(home), utc_now()
    summary = back_up(home, options.place, settings=settings, now=now, with_master_key=options.with_master_key)
    return dataclasses.asdict(summary) | {
        "target": str(options.place),
        "lacks_master_key": not options.with_master_key and (home.keys / DATABASE).exists(),
    }


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
        swept.append(
            remove_expired_files(
                home.jobs, records, kept=settings.job_files_kept, now=utc_now(), dry_run=options.dry_run
            )
        )
        swept.append(sweep_inputs(home, records, settings=settings, now=utc_now(), dry_run=options.dry_run))
    return {"dry_run": options.dry_run, "swept": [dataclasses.asdict(garbage) for garbage in swept]}


def _check(home: Home, options: argparse.Namespace) -> dict[str, Any]:
    checks = check_home(home, _settings(home), now=utc_now(), thorough=options.thorough)
    return {"checks": [dataclasses.asdict(check) for check in checks]}


def _check_upgrade(home: Home, options: argparse.Namespace) -> dict[str, Any]:  # noqa: ARG001 - as all commands
    return {"checks": [dataclasses.asdict(check) for check in check_upgrade(home, _settings(home))]}


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


def _change_settings(home: Home, options: argparse.Namespace) -> dict[str, Any]:
    """Change a setting in the file, and return all settings with their sources."""
    home.check()
    if options.set or options.unset:
        name, text = options.set or (options.unset, None)
        # An unknown setting can be removed: it keeps the yard from starting.
        value = None if text is None else _parse_usable_setting(name, text)
        home.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        write_setting(home.settings_file, name, value)
    found = setting_values(ServerSettings, file=home.settings_file, environment=os.environ, prefix=PREFIX)
    return {"settings": [dataclasses.asdict(each) for each in found]}


def _parse_usable_setting(name: str, text: str) -> Any:
    """Return the value of a setting. Raises InvalidRequest for one that would keep the yard from starting."""
    value = parse_setting(ServerSettings, name, text)
    if name == "port" and not 0 <= value < MAX_PORT:
        raise InvalidRequest(
            f"port is {value}; choose a number from 0 to {MAX_PORT - 1}, because https uses the next one."
        )
    if name == "engines":
        require_known_engines(value)
    return value


def _containers(home: Home) -> ImageStore:
    return ImageStore(_settings(home).container_tool)


def _settings(home: Home) -> ServerSettings:
    return read_settings(ServerSettings, file=home.settings_file, environment=os.environ, prefix=PREFIX)


COMMANDS = {
    "backup": _backup,
    "restore": _restore,
    "gc": _gc,
    "check": _check,
    "images": _images,
    "settings": _change_settings,
    "upgrade-check": _check_upgrade,
}

if __name__ == "__main__":
    sys.exit(main())
