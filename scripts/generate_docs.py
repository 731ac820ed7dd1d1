"""Generate the parts of docs/ that repeat what the code says.

A page has such a part between `<!-- generated: NAME -->` and `<!-- end -->`; the rest of the page is written by hand.
`make docs` updates the parts, and a test fails if one is out of date.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from botocore.loaders import Loader

from trainyard.cli.main import COMMANDS, trainyard
from trainyard.foundation.settings import setting_rows
from trainyard.insight.rules.catalog import RULES
from trainyard.insight.rules.contract import Parameter
from trainyard.insight.rules.parameters import Defaults, default_value, possible_values
from trainyard.insight.rules.profiler.catalog import PROFILER_RULES
from trainyard.insight.rules.profiler.patience import SCAN_INTERVAL
from trainyard.insight.rules.profiler.profiler_report import ProfilerReport
from trainyard.server.services.registry import MODULES, service
from trainyard.server.settings import PREFIX, ServerSettings
from trainyard.wire.models import OWN_MODELS

# The public modules, in the order in which a user meets them.
SDK_MODULES = (
    *("estimator", "pytorch", "tensorflow", "inputs", "instance_group", "session", "image_uris"),
    *("tuner", "parameter", "analytics", "profiler", "debugger", "trial", "hook", "data", "parameter_server"),
    "exceptions",
)

DOCS = Path(__file__).resolve().parents[1] / "docs"

_WIDE: dict[str, Any] = {"max_content_width": 100, "terminal_width": 100}
_SIGNATURE_WIDTH = 100
_SECTIONS = {"Args:": "Arguments", "Raises:": "Raises", "Returns:": "Returns"}
_ITEM = re.compile(r" {4}(?P<name>\*{0,2}\w+): (?P<text>.*)")
_BLOCK = re.compile(r"<!-- generated: (?P<name>\w+) -->\n.*?<!-- end -->", re.DOTALL)


def main() -> None:
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text()
        fresh = update_page(text)
        if fresh != text:
            page.write_text(fresh)
            print(f"wrote {page.relative_to(DOCS.parent)}")


def update_page(text: str) -> str:
    """Return the text of a page with its generated parts up to date."""
    return _BLOCK.sub(_render, text)


def _render(block: re.Match[str]) -> str:
    name = block["name"]
    return f"<!-- generated: {name} -->\n\n{GENERATORS[name]()}\n\n<!-- end -->"


def settings() -> str:
    header = "| setting | environment variable | default | meaning |\n|---|---|---|---|"
    lines = [
        f"| `{row.name}` | `{row.variable}` | {f'`{row.default}`' if row.default else 'empty'} | {row.help} |"
        for row in setting_rows(ServerSettings, PREFIX)
    ]
    return "\n".join([header, *lines])


def operations() -> str:
    return "\n\n".join(_service(name) for name in MODULES)


def _service(name: str) -> str:
    lines = [f"- `{operation}`{_remark(function)}" for operation, function in sorted(_table(name).items())]
    title = _model(name)["metadata"]["serviceFullName"]
    return "\n".join([f"## {title} (`{name}`)\n", *lines])


def _table(name: str) -> dict[str, Callable[..., object]]:
    return dict(service(name).operations)


def _remark(function: Callable[..., object]) -> str:
    """Return the first paragraph of the docstring of a function, if it has one."""
    paragraph = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
    return f": {paragraph}" if paragraph else ""


def api() -> str:
    """Return the operations of the yard's own service, from its model."""
    model = _model("trainyard")
    return "\n\n".join(_operation(model, name) for name in model["operations"])


def _operation(model: dict[str, Any], name: str) -> str:
    operation = model["operations"][name]
    http = operation["http"]
    parts = [f"### {name}", operation["documentation"], f"`{http['method']} {http['requestUri']}`"]
    for title, side in (("Request", "input"), ("Response", "output")):
        if side in operation and model["shapes"][operation[side]["shape"]]["members"]:
            parts.append(f"{title}:\n\n" + "\n".join(_members(model, operation[side]["shape"], level=0)))
    return "\n\n".join(parts)


def _members(model: dict[str, Any], shape: str, *, level: int) -> Iterator[str]:
    """Yield a line for each member, followed by the members of nested structures."""
    structure = model["shapes"][shape]
    for name, reference in structure["members"].items():
        below, is_list = _structure_of(model, reference["shape"])
        words = reference.get("documentation") or (model["shapes"][below].get("documentation", "") if below else "")
        kind = ", ".join(["list"] * is_list + ["optional"] * (name not in structure.get("required", ())))
        yield f"{'  ' * level}- `{name}`{f' ({kind})' if kind else ''}{f': {words}' if words else ''}"
        if below:
            yield from _members(model, below, level=level + 1)


def _structure_of(model: dict[str, Any], shape: str) -> tuple[str | None, bool]:
    """Return the structure of a member or of the elements of a list, and whether the member is a list."""
    described = model["shapes"][shape]
    if described["type"] == "list":
        return _structure_of(model, described["member"]["shape"])[0], True
    return (shape if described["type"] == "structure" else None), False


def _model(name: str) -> dict[str, Any]:
    model: dict[str, Any] = Loader(extra_search_paths=[str(OWN_MODELS)]).load_service_model(name, "service-2")
    return model


def commands() -> str:
    with trainyard.make_context("trainyard", [], resilient_parsing=True, **_WIDE) as context:
        return "\n\n".join(text for name in COMMANDS for text in _helps(context, name, level=2))


def _helps(parent: click.Context, name: str, *, level: int) -> Iterator[str]:
    """Yield the help of a command, then that of its subcommands."""
    assert isinstance(parent.command, click.Group)
    command = parent.command.get_command(parent, name)
    assert command is not None, f"there is no command {name}"
    with command.make_context(name, [], parent=parent, resilient_parsing=True, **_WIDE) as context:
        yield f"{'#' * level} {context.command_path}\n\n```text\n{command.get_help(context)}\n```"
        for below in command.list_commands(context) if isinstance(command, click.Group) else ():
            yield from _helps(context, below, level=level + 1)


def sdk() -> str:
    """Return the public modules of the SDK, with the docstring and the arguments of every public name."""
    homes: dict[object, str] = {}
    return "\n\n".join(_sdk_module(name, homes) for name in SDK_MODULES)


def _sdk_module(name: str, homes: dict[object, str]) -> str:
    """Return the page of a module. What one before it exports too is described there."""
    module = import_module(f"trainyard.{name}")
    parts = [f"## trainyard.{name}", _markdown(inspect.getdoc(module) or "")]
    repeated: dict[str, list[str]] = {}
    for each in module.__all__:
        value = getattr(module, each)
        if not inspect.isclass(value) and not inspect.isfunction(value):
            continue
        home = homes.setdefault(value, name)
        if home == name:
            parts += _sdk_name(each, value, level=3)
        else:
            repeated.setdefault(home, []).append(f"`{each}`")
    parts += [f"From [trainyard.{home}](#trainyard{home}): {', '.join(names)}." for home, names in repeated.items()]
    return "\n\n".join(parts)


def _sdk_name(name: str, value: Any, *, level: int) -> Iterator[str]:
    """Yield the heading and the text of a function or class, and of the methods that a class defines itself."""
    kind = "class " if inspect.isclass(value) else ""
    yield f"{'#' * level} {kind}{name}"
    yield f"```text\n{name.rpartition('.')[2]}{_signature(value)}\n```"
    yield _markdown(inspect.getdoc(value) or "")
    if inspect.isclass(value) and not issubclass(value, Exception | Enum):
        for member, each in vars(value).items():
            function = each.__func__ if isinstance(each, classmethod | staticmethod) else each
            if member.startswith("_"):
                continue
            if inspect.isfunction(function):
                yield from _sdk_name(f"{name}.{member}", function, level=level + 1)
            elif isinstance(each, property):
                yield f"- `{member}`: {_markdown(inspect.getdoc(each) or '')}"


def _signature(value: Any) -> str:
    """Return the arguments with their defaults, one per line where they are many; types are in the docstrings."""
    if inspect.isclass(value) and issubclass(value, Exception | Enum):
        return ""
    parameters = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in inspect.signature(value).parameters.values()
        if each.name not in ("self", "cls")
    ]
    text = str(inspect.Signature(parameters))
    if len(text) <= _SIGNATURE_WIDTH:
        return text
    return "(\n" + "".join(f"    {line},\n" for line in text[1:-1].split(", ")) + ")"


def _markdown(doc: str) -> str:
    """Return a docstring as Markdown: its `Args:`, `Raises:` and `Returns:` become lists."""
    lines: list[str] = []
    is_listed = False
    for line in doc.splitlines():
        if line in _SECTIONS:
            is_listed = True
            lines += [f"**{_SECTIONS[line]}**", ""]
        elif is_listed and (item := _ITEM.fullmatch(line)):
            lines.append(f"- `{item['name']}`: {item['text']}")
        elif is_listed and line.startswith("        "):
            lines[-1] += f" {line.strip()}"
        elif is_listed and line.startswith("    "):
            lines.append(line.strip())
        else:
            lines.append(line)
    return "\n".join(lines).strip()


def rules() -> str:
    """Return the debugger rules, each with a link to its page."""
    return "\n".join(f"- [{name}](rules/{name}.md): {_remark(rule)[2:]}" for name, rule in sorted(RULES.items()))


def _parameters(parameters: Iterable[Parameter]) -> str:
    header = "| parameter | AWS default | advised | values | meaning |\n|---|---|---|---|---|"
    lines = [
        f"| `{each.name}` | {_default(each, Defaults.AWS)} | {_default(each, Defaults.ADVISED)} | "
        f"{possible_values(each)} | {each.help} |"
        for each in parameters
    ]
    return "\n".join([header, *lines])


def _report_parameters() -> str:
    """Return the parameters of a profiler report, by rule; `_parameters` would list each with its meaning again."""
    return "\n".join(
        f"- `{name}_…`: {', '.join(f'`{each.name}`' for each in found)}" for name, found in _PROFILER_PARAMETERS.items()
    )


def _default(parameter: Parameter, defaults: Defaults) -> str:
    if parameter.is_required:
        return "required"
    value = default_value(parameter, defaults)
    if isinstance(value, tuple):
        value = ",".join(value)
    text = str(value).replace("|", "\\|")
    return f"`{text}`"


# Without those of ProfilerReport, which are these, and without the one that all rules have.
_PROFILER_PARAMETERS = {
    name: found
    for name, rule in PROFILER_RULES.items()
    if rule is not ProfilerReport and (found := [each for each in rule.parameters if each is not SCAN_INTERVAL])
}

GENERATORS: dict[str, Callable[[], str]] = {
    "settings": settings,
    "operations": operations,
    "api": api,
    "commands": commands,
    "sdk": sdk,
    "rules": rules,
    **{f"parameters_{name}": partial(_parameters, rule.parameters) for name, rule in RULES.items() if rule.parameters},
    **{f"profiler_parameters_{name}": partial(_parameters, found) for name, found in _PROFILER_PARAMETERS.items()},
    "profiler_parameters_ProfilerReport": _report_parameters,
}


if __name__ == "__main__":
    main()
