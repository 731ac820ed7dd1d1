"""Writes the parts of docs/ that repeat what the code already says.

A page holds such a part between `<!-- generated: NAME -->` and `<!-- end -->`; the rest of it is written by hand.
`make docs` writes them anew, and a test finds out when they are stale.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
from botocore.loaders import Loader

from trainyard.cli.main import COMMANDS, trainyard
from trainyard.foundation.settings import rows
from trainyard.insight.rules.catalog import RULES
from trainyard.insight.rules.contract import DebuggerRule, Parameter
from trainyard.insight.rules.parameters import Defaults, default, possible_values
from trainyard.server.services.registry import MODULES, service
from trainyard.server.settings import PREFIX, ServerSettings
from trainyard.wire.models import OWN_MODELS

DOCS = Path(__file__).resolve().parents[1] / "docs"

_WIDE: dict[str, Any] = {"max_content_width": 100, "terminal_width": 100}
_BLOCK = re.compile(r"<!-- generated: (?P<name>\w+) -->\n.*?<!-- end -->", re.DOTALL)


def main() -> None:
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text()
        fresh = refreshed(text)
        if fresh != text:
            page.write_text(fresh)
            print(f"wrote {page.relative_to(DOCS.parent)}")


def refreshed(text: str) -> str:
    """The page with its generated parts as they should be now."""
    return _BLOCK.sub(_render, text)


def _render(block: re.Match[str]) -> str:
    name = block["name"]
    return f"<!-- generated: {name} -->\n\n{GENERATORS[name]()}\n\n<!-- end -->"


def settings() -> str:
    header = "| setting | environment variable | default | meaning |\n|---|---|---|---|"
    lines = [
        f"| `{row.name}` | `{row.variable}` | {f'`{row.default}`' if row.default else 'empty'} | {row.help} |"
        for row in rows(ServerSettings, PREFIX)
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
    """The first paragraph of what the function says about itself, if it says anything."""
    said = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
    return f": {said}" if said else ""


def api() -> str:
    """The yard's own operations, as their model words them."""
    model = _model("trainyard")
    return "\n\n".join(_operation(model, name) for name in model["operations"])


def _operation(model: dict[str, Any], name: str) -> str:
    operation = model["operations"][name]
    http = operation["http"]
    parts = [f"### {name}", operation["documentation"], f"`{http['method']} {http['requestUri']}`"]
    for title, side in (("Request", "input"), ("Answer", "output")):
        if side in operation and model["shapes"][operation[side]["shape"]]["members"]:
            parts.append(f"{title}:\n\n" + "\n".join(_members(model, operation[side]["shape"], level=0)))
    return "\n\n".join(parts)


def _members(model: dict[str, Any], shape: str, *, level: int) -> Iterator[str]:
    """A line for each member, with those of the structures inside below it."""
    structure = model["shapes"][shape]
    for name, reference in structure["members"].items():
        below, is_list = _structure_of(model, reference["shape"])
        words = reference.get("documentation") or (model["shapes"][below].get("documentation", "") if below else "")
        kind = ", ".join(["list"] * is_list + ["optional"] * (name not in structure.get("required", ())))
        yield f"{'  ' * level}- `{name}`{f' ({kind})' if kind else ''}{f': {words}' if words else ''}"
        if below:
            yield from _members(model, below, level=level + 1)


def _structure_of(model: dict[str, Any], shape: str) -> tuple[str | None, bool]:
    """The structure that a member is or lists, and whether it is a list."""
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
    """The help of a command, then that of the commands below it."""
    assert isinstance(parent.command, click.Group)
    command = parent.command.get_command(parent, name)
    assert command is not None, f"there is no command {name}"
    with command.make_context(name, [], parent=parent, resilient_parsing=True, **_WIDE) as context:
        yield f"{'#' * level} {context.command_path}\n\n```text\n{command.get_help(context)}\n```"
        for below in command.list_commands(context) if isinstance(command, click.Group) else ():
            yield from _helps(context, below, level=level + 1)


def rules() -> str:
    """The rules on tensors, each with its page."""
    return "\n".join(f"- [{name}](rules/{name}.md): {_remark(rule)[2:]}" for name, rule in sorted(RULES.items()))


def _parameters(rule: type[DebuggerRule]) -> str:
    header = "| parameter | AWS's default | advised | possible | meaning |\n|---|---|---|---|---|"
    lines = [
        f"| `{each.name}` | {_default(each, Defaults.AWS)} | {_default(each, Defaults.ADVISED)} | "
        f"{possible_values(each)} | {each.help} |"
        for each in rule.parameters
    ]
    return "\n".join([header, *lines])


def _default(parameter: Parameter, defaults: Defaults) -> str:
    if parameter.is_required:
        return "must be given"
    value = default(parameter, defaults)
    if isinstance(value, tuple):
        value = ",".join(value)
    text = str(value).replace("|", "\\|")
    return f"`{text}`"


GENERATORS: dict[str, Callable[[], str]] = {
    "settings": settings,
    "operations": operations,
    "api": api,
    "commands": commands,
    "rules": rules,
    **{f"parameters_{name}": partial(_parameters, rule) for name, rule in RULES.items() if rule.parameters},
}


if __name__ == "__main__":
    main()
