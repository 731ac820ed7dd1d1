"""`trainyard config`: show and change the settings of the yard."""

from pathlib import Path
from typing import Any

import click

from trainyard._sdk.connection import HOME_VARIABLE
from trainyard._sdk.profiles import PROFILE_VARIABLE
from trainyard.cli.completion.values import complete_settings
from trainyard.cli.terminal.console import (
    CommandWithExamples,
    DefaultCommandGroup,
    command_line,
    environment,
    home_option,
    json_option,
    result_option,
    say,
    select_home,
)
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.cli.terminal.json_output import JsonFields, pascal_case_keys, print_json
from trainyard.cli.terminal.tables import print_table
from trainyard.cli.yard.maintenance import maintain
from trainyard.foundation.home import Home

# What `list` shows of a setting that may contain a password; `get` prints it.
_HIDDEN = "(hidden)"
# What commands need before they can read the file: the option and the variable.
_CLIENT_SETTINGS = {"home": ("--home", HOME_VARIABLE), "profile": ("`trainyard yards use`", PROFILE_VARIABLE)}

_RESULT_FIELDS = ("Name", "Value", "Source")

Setting = dict[str, Any]

_name_argument = click.argument("name", shell_complete=complete_settings)


@click.group(
    cls=DefaultCommandGroup,
    default="list",
    examples=(
        "trainyard config                         all settings that differ from their defaults",
        "trainyard config list --all              all settings, and where each value comes from",
        "trainyard config get port",
        "trainyard config set job_files_kept 30d",
        "trainyard config unset job_files_kept    back to the default",
    ),
)
def config() -> None:
    """Show and change the settings of the yard, in settings.toml of the home folder.

    Variables of this shell come before the file, and the file before the defaults.
    """


@config.command(
    name="list", cls=CommandWithExamples, examples=("trainyard config list --all", "trainyard config list --json")
)
@click.option("-a", "--all", "shows_all", is_flag=True, help="Show settings with their defaults, too.")
@home_option
@json_option
def list_settings(shows_all: bool, folder: Path | None, as_json: JsonFields | None) -> None:
    """List the settings with their values and where these come from."""
    home = select_home(folder)
    settings = [*_client_settings(home, folder), *map(_hide_secret, _change(home))]
    if as_json:
        print_json({"Settings": pascal_case_keys(settings)}, as_json, items="Settings")
        return
    shown = [each for each in settings if shows_all or each["source"] != "default"]
    if shown:
        print_table(
            ["setting", "value", "from"], [[each["name"], each["value"], _source(each, home)] for each in shown]
        )
    else:
        say("All settings have their defaults; --all lists them.")


@config.command(cls=CommandWithExamples, examples=("trainyard config get port",))
@_name_argument
@home_option
@json_option
def get(name: str, folder: Path | None, as_json: JsonFields | None) -> None:
    """Print the value of the setting NAME."""
    home = select_home(folder)
    found = _find(home, name)
    if as_json:
        print_json(pascal_case_keys(found), as_json)
        return
    click.echo(found["value"])


@config.command(
    name="set",
    cls=CommandWithExamples,
    examples=("trainyard config set warm_idle 30m", "trainyard config set slots 4"),
)
@_name_argument
@click.argument("value")
@home_option
@result_option(*_RESULT_FIELDS)
def set_setting(name: str, value: str, folder: Path | None, as_json: JsonFields | None) -> None:
    """Set the setting NAME to VALUE in the file."""
    home, name = select_home(folder), _to_setting_name(name)
    _require_in_file(name)
    changed = next(each for each in _change(home, "--set", name, value) if each["name"] == name)
    _report(home, changed)
    _print_result(changed, as_json)


@config.command(cls=CommandWithExamples, examples=("trainyard config unset slots",))
@_name_argument
@home_option
@result_option(*_RESULT_FIELDS)
def unset(name: str, folder: Path | None, as_json: JsonFields | None) -> None:
    """Remove the setting NAME from the file, so that it has its default."""
    home, name = select_home(folder), _to_setting_name(name)
    _require_in_file(name)
    before = next((each for each in _read_known(home) if each["name"] == name), None)
    if before and before["source"] == "default":
        say(f"{name} is not set in {home.settings_file}; it has its default, {before['value'] or 'empty'}.")
        _print_result(before, as_json)
        return
    changed = next((each for each in _change(home, "--unset", name) if each["name"] == name), None)
    if changed:
        _report(home, changed)
    else:
        say(f"Removed {name}, which is not a setting, from {home.settings_file}.")
    _print_result(changed or {"name": name, "value": None, "source": None}, as_json)


def _print_result(setting: Setting, as_json: JsonFields | None) -> None:
    if as_json:
        shown = pascal_case_keys(_hide_secret(setting))
        print_json({field: shown[field] for field in _RESULT_FIELDS}, as_json)


def _change(home: Home, *arguments: str) -> list[Setting]:
    found: list[Setting] = maintain("settings", home, *arguments, invalid=ExitCode.USAGE)["settings"]
    return found


def _read_known(home: Home) -> list[Setting]:
    """Return the settings; none if the file has one that does not exist, which `unset` can remove."""
    try:
        return _change(home)
    except Failure as error:
        if error.code != ExitCode.USAGE:
            raise
        return []


def _require_in_file(name: str) -> None:
    """Raise UsageError for what `list` shows and the file cannot have."""
    if name in _CLIENT_SETTINGS:
        option, variable = _CLIENT_SETTINGS[name]
        raise click.UsageError(f"{name} is not in the file, which is in the home folder: use {option} or {variable}.")


def _find(home: Home, name: str) -> Setting:
    settings = {each["name"]: each for each in _change(home)}
    if (found := settings.get(_to_setting_name(name))) is not None:
        return found
    # Imported here: only a mistake needs it.
    from difflib import get_close_matches

    near = get_close_matches(_to_setting_name(name), settings, 1)
    hint = f' Did you mean "{near[0]}"?' if near else ""
    raise click.UsageError(f'There is no setting "{name}".{hint} `trainyard config list --all` lists them.')


def _to_setting_name(name: str) -> str:
    return name.replace("-", "_").lower()


def _report(home: Home, setting: Setting) -> None:
    shown = _hide_secret(setting)["value"] or "empty"
    if setting["source"] == "environment":
        say(f"Changed {home.settings_file}, but {_source(setting, home)} of this shell overrides it with {shown}.")
    else:
        say(f"{setting['name']} is now {shown} ({_source(setting, home)}).")
    if home.runtime() is not None:
        say(f"The running yard keeps its old value until it is restarted: {_restart(home)}")


def _restart(home: Home) -> str:
    return f"{command_line('down', home)} && {command_line('up --detach', home)}"


def _source(setting: Setting, home: Home) -> str:
    if setting["source"] == "environment":
        return f"the variable {setting['variable']}"
    return str(home.settings_file) if setting["source"] == "file" else "default"


def _hide_secret(setting: Setting) -> Setting:
    if setting.get("is_secret") and setting["value"]:
        return {**setting, "value": _HIDDEN}
    return setting


def _client_settings(home: Home, folder: Path | None) -> list[Setting]:
    """Return what commands in this shell use: the home folder, and the profile of a yard on another machine."""
    variables = environment()
    rows = (
        ("home", HOME_VARIABLE, str(home.root), "", "Home folder of the yard on this machine."),
        ("profile", PROFILE_VARIABLE, variables.get(PROFILE_VARIABLE, ""), "", "Yard that `trainyard login` stored."),
    )
    return [
        {
            "name": name,
            "value": value,
            "source": "environment" if variables.get(variable) and not folder else "default",
            "default": default,
            "variable": variable,
            "help": text,
        }
        for name, variable, value, default, text in rows
    ]
