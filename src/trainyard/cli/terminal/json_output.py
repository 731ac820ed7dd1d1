"""The option --json: whole documents or selected fields. Keys are written as in the API: `TrainingJobName`."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

from trainyard.cli.terminal.failure import ExitCode, Failure

_FIELDS = re.compile(r"[A-Za-z][A-Za-z0-9]*(,[A-Za-z][A-Za-z0-9]*)*")


@dataclass(frozen=True, slots=True)
class JsonFields:
    """The fields to print, in the spelling of the user. Without names, everything is printed."""

    names: tuple[str, ...] = ()


class JsonFieldsParameter(click.ParamType[JsonFields]):
    """Fields separated by commas; an empty text stands for all."""

    name = "fields"

    def __init__(self, known: Sequence[str] = ()) -> None:
        self._known = known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> JsonFields:
        if isinstance(value, JsonFields):
            return value
        names = tuple(name.strip() for name in value.split(",") if name.strip())
        if self._known:
            try:
                names = _spell(names, self._known)
            except Failure as failure:
                self.fail(f"{failure.message} {failure.why}", param, ctx)
        return JsonFields(names)

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        param: click.Parameter,  # noqa: ARG002 - the same
        incomplete: str,
    ) -> list["CompletionItem[str]"]:
        """Complete the last of the fields."""
        from click.shell_completion import CompletionItem

        *given, last = incomplete.split(",")
        fields = [name for name in self._known if name not in given and name.lower().startswith(last.lower())]
        return [CompletionItem(",".join([*given, name])) for name in fields]

    def could_be(self, word: str, *, takes_arguments: bool) -> bool:
        """Return whether the word after --json names fields, and is not an argument of the command.

        Fields have a comma, a capital first letter, or are known.
        """
        if not _FIELDS.fullmatch(word):
            return False
        is_known = word.lower() in (name.lower() for name in self._known)
        return not takes_arguments or "," in word or word[0].isupper() or is_known


def print_json(
    document: Mapping[str, Any],
    fields: JsonFields,
    *,
    items: str | None = None,
    optional: Sequence[str] = (),
) -> None:
    """Print one JSON object with the selected fields.

    `items` names the list whose items the fields belong to, in a document that is mainly a list. `optional` are fields
    that the document could have; without a value, they are null.
    """
    if not fields.names:
        shown: Any = document
    elif items is None:
        shown = select_fields(document, fields, optional=optional)
    else:
        shown = {items: [select_fields(item, fields, optional=optional) for item in document[items]]}
    click.echo(json.dumps(shown, indent=2))


def json_line(document: Mapping[str, Any], fields: JsonFields) -> str:
    """Return one line with the selected fields, for output with an object on each line."""
    return json.dumps(select_fields(document, fields) if fields.names else document)


def select_fields(document: Mapping[str, Any], fields: JsonFields, *, optional: Sequence[str] = ()) -> dict[str, Any]:
    """Return the selected fields of a document; all of them without a selection."""
    if not fields.names:
        return dict(document)
    return {name: document.get(name) for name in _spell(fields.names, [*document, *optional])}


def pascal_case_keys(value: Any) -> Any:
    """Return a value with keys as in the API: `MemoryBytes` for `memory_bytes`. No key may be a name of the user's."""
    if isinstance(value, Mapping):
        return {_pascal_case(key): pascal_case_keys(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [pascal_case_keys(each) for each in value]
    return value


def _pascal_case(name: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


def _spell(names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return names in their right spelling; the user may have written them in lower case."""
    spelling = {name.lower(): name for name in known}
    unknown = [name for name in names if name.lower() not in spelling]
    if unknown:
        listed = ", ".join(sorted(spelling.values()))
        raise Failure(f'There is no field "{unknown[0]}".', why=f"The fields are {listed}.", code=ExitCode.USAGE)
    return tuple(spelling[name.lower()] for name in names)
