"""`trainyard.toml`: the options of `trainyard run`, in a file beside the script. The command line takes precedence."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from trainyard.cli.run.arguments import HYPERPARAMETERS, RunCommand, explain_unknown_option, join_words

FILE_NAME = "trainyard.toml"

_TABLE, _HYPERPARAMETERS = "run", "hyperparameters"
_PROJECT = "trainyard.project"
# The yard belongs to the user, not to the project: nobody's project may send data to a yard of its choice. The names of
# the options, and of their parameters.
_YARD_OPTIONS = {"home": "folder", "endpoint": "endpoint", "profile": "profile"}
# Parameters whose values are words joined into one.
_WORDS, _REPEATED_WORDS = frozenset({"dependencies", "input_path"}), frozenset({"iis"})
# Parameters that can be tables, of which each entry is a pair.
_PAIRS = frozenset({"md", "tag"})
# Parameters with a local path, which is relative to the folder of the file.
_PATHS = frozenset({"source_dir", "dependencies", "input_path", "output_path"})
_SCRIPTS = ("script", "entry_point")


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """The options of a project file by parameter name: their values, as click parses them, and their lines."""

    path: Path
    options: Mapping[str, Any]
    texts: Mapping[str, str]
    hyperparameters: Mapping[str, Any]


class ProjectRunCommand(RunCommand):
    """A command that takes the options of a project file as its defaults."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with click.core.augment_usage_errors(ctx), explain_unknown_option(ctx):
            path = None if ctx.resilient_parsing else self._find_file(ctx, args)
            project = read_project_file(path, self, ctx) if path else None
        if project:
            ctx.meta[_PROJECT] = project
            ctx.default_map = dict(project.options)
        rest = super().parse_args(ctx, args)
        if project:
            _drop_replaced(ctx)
            ctx.meta[HYPERPARAMETERS] = {**project.hyperparameters, **ctx.meta[HYPERPARAMETERS]}
        return rest

    def _find_file(self, ctx: click.Context, args: list[str]) -> Path | None:
        """Return the project file beside the script; without a script, that of the current folder."""
        cut = args.index("--") if "--" in args else len(args)
        given, _, _ = self.make_parser(ctx).parse_args(self.attach_json_fields(list(join_words(args[:cut]))))
        help_option = self.get_help_option(ctx)
        if help_option and help_option.name in given:
            return None
        # click has a mark of its own for an argument that is missing.
        words = {name: value for name, value in given.items() if isinstance(value, str)}
        source, script = words.get("source_dir"), words.get("script") or words.get("entry_point") or ""
        folders = [Path(source, script).parent, Path(source)] if source and script else [Path(script).parent]
        return next((file for folder in folders if (file := folder / FILE_NAME).is_file()), None)


def read_project_file(path: Path, command: click.Command, ctx: click.Context) -> ProjectFile:
    """Read a project file. Raises UsageError, which names the file, for what is no option or no value of one."""
    table = _read_table(path)
    hyperparameters = table.pop(_HYPERPARAMETERS, {})
    _require_values(hyperparameters, path)
    parameters = _parameters(command)
    found: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for key, value in table.items():
        if key in _YARD_OPTIONS:
            raise click.UsageError(
                f"{path}: a project cannot choose the yard of its users; give --{key} on the command line."
            )
        parameter = parameters.get(_normal(key))
        if parameter is None:
            raise click.UsageError(f'{path}: `trainyard run` has no option "{key}".{_nearest(key, parameters)}')
        name = parameter.name or ""
        if name in keys:
            raise click.UsageError(f'{path} has "{keys[name]}" and "{key}", which are the same option.')
        found[name], keys[name] = value, key
    options = {name: _value(parameters[name], value, path=path, key=keys[name]) for name, value in found.items()}
    for name, value in options.items():
        _require_type(ctx, parameters[name], value, path=path, key=keys[name])
    texts = {name: f"{keys[name]} = {json.dumps(found[name])}" for name in found}
    return ProjectFile(path, options | _resolve_paths(options, path.parent), texts, hyperparameters)


def used_options(ctx: click.Context) -> str:
    """Return which options of the project file the command uses, as one line; empty without any."""
    project: ProjectFile | None = ctx.meta.get(_PROJECT)
    if project is None:
        return ""
    from_file = click.core.ParameterSource.DEFAULT_MAP
    used = [text for name, text in project.texts.items() if ctx.get_parameter_source(name) == from_file]
    given = ctx.meta[HYPERPARAMETERS]
    used += [f"--{name} {value}" for name, value in project.hyperparameters.items() if given[name] is value]
    return f"Options from {project.path}: {', '.join(used)}" if used else ""


def _drop_replaced(ctx: click.Context) -> None:
    """Leave out options of the file that others on the command line replace: groups, or one type and its count."""
    source = click.core.ParameterSource
    for given, replaced in ((("group",), ("it", "ic")), (("it", "ic"), ("group",))):
        if any(ctx.get_parameter_source(name) == source.COMMANDLINE for name in given):
            for name in replaced:
                if ctx.get_parameter_source(name) == source.DEFAULT_MAP:
                    ctx.params[name] = () if name == "group" else None
                    ctx.set_parameter_source(name, source.DEFAULT)


def _read_table(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path} is not valid TOML: {error}.") from error
    for name in content:
        if name != _TABLE:
            raise click.UsageError(f'{path} has "{name}" outside of [{_TABLE}]; options belong under [{_TABLE}].')
    table: dict[str, Any] = content.get(_TABLE, {})
    if not isinstance(table, dict):
        raise click.UsageError(f"{path}: {_TABLE} is not a table; write [{_TABLE}] and the options below it.")
    return dict(table)


def _parameters(command: click.Command) -> dict[str, click.Parameter]:
    """Return the parameters by all their names, in one spelling."""
    found: dict[str, click.Parameter] = {}
    for parameter in command.params:
        if parameter.name not in _YARD_OPTIONS.values():
            names = [option.lstrip("-") for option in parameter.opts if option.startswith("--")]
            found |= {_normal(name): parameter for name in (*names, parameter.name or "")}
    return found


def _value(parameter: click.Parameter, value: Any, *, path: Path, key: str) -> Any:
    """Return a value of a file as click parses it."""
    name = parameter.name or ""
    where = f"{path}: {key}"
    is_flag = isinstance(parameter, click.Option) and parameter.is_flag
    if is_flag or isinstance(value, bool):
        if not is_flag or not isinstance(value, bool):
            raise click.UsageError(f"{where} must {'' if is_flag else 'not '}be true or false.")
        return value
    if name in _WORDS:
        return [value] if isinstance(value, str) else _require_words(value, where)
    if name in _REPEATED_WORDS:
        return [_require_words(words, where) for words in _rows(value)]
    if name in _PAIRS:
        return [_require_words(pair, where) for pair in _rows(value)]
    if name == "distribution" and isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(parameter, click.Option) and parameter.multiple:
        return _require_words([value] if isinstance(value, str) else value, where)
    takes_number = isinstance(parameter.type, (click.types.IntParamType, click.types.FloatParamType))
    if not isinstance(value, (int, float) if takes_number else str):
        raise click.UsageError(f"{where} must be a {'number' if takes_number else 'text in quotes'}.")
    return value


def _rows(value: Any) -> Iterable[Any]:
    """Return the rows of a list or of a table; the first word of a table's row is its key."""
    if not isinstance(value, Mapping):
        return value if isinstance(value, list) else [value]
    return [[name, *(rest if isinstance(rest, list) else [rest])] for name, rest in value.items()]


def _require_words(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
        raise click.UsageError(f"{where} must be a list of texts.")
    return value


def _require_values(hyperparameters: Any, path: Path) -> None:
    if not isinstance(hyperparameters, Mapping):
        raise click.UsageError(f"{path}: {_HYPERPARAMETERS} is not a table of names and values.")
    for name, value in hyperparameters.items():
        if not isinstance(value, (str, int, float)):
            raise click.UsageError(f"{path}: the hyperparameter {name} must be a text or a number.")


def _require_type(ctx: click.Context, parameter: click.Parameter, value: Any, *, path: Path, key: str) -> None:
    if parameter.name in _WORDS | _REPEATED_WORDS:
        return
    try:
        parameter.type_cast_value(ctx, value)
    except click.BadParameter as error:
        raise click.UsageError(f"{path}: {key}: {error.message}") from error


def _resolve_paths(options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the options with local paths, which are relative to the file, and those of joined words."""
    found: dict[str, Any] = {}
    for name in options.keys() & _PATHS:
        value = options[name]
        if isinstance(value, list):
            count = len(value) if name == "dependencies" else 1
            value = [*(_resolve(word, folder) for word in value[:count]), *value[count:]]
        else:
            value = _resolve(value, folder)
        found[name] = json.dumps(value) if name in _WORDS else value
    for name in options.keys() & _REPEATED_WORDS:
        found[name] = [json.dumps(words) for words in options[name]]
    # With a source folder, the script is a path in it.
    if "source_dir" not in options:
        found |= {name: _resolve(options[name], folder) for name in _SCRIPTS if name in options}
    return found


def _resolve(text: str, folder: Path) -> str:
    return text if text.startswith("s3://") else str(folder / Path(text).expanduser())


def _normal(name: str) -> str:
    return name.replace("-", "_")


def _nearest(key: str, parameters: Mapping[str, click.Parameter]) -> str:
    # Imported here: only a mistake needs it.
    from difflib import get_close_matches

    near = get_close_matches(_normal(key), [*parameters, _HYPERPARAMETERS], 1)
    return f' Did you mean "{near[0].replace("_", "-")}"?' if near else ""
