import json
import os
from pathlib import Path

import click
import pytest

from trainyard.cli.terminal.console import CommandWithExamples, json_option, result_option
from trainyard.cli.terminal.failure import Failure
from trainyard.cli.terminal.json_output import JsonFields, pascal_case_keys, print_json

JOBS = {"Jobs": [{"TrainingJobName": "a", "TrainingJobStatus": "Failed"}], "Total": 1}


def parsed(command: click.Command, *words: str) -> click.Context:
    return command.make_context("test", list(words), obj=os.environ)


@click.command(cls=CommandWithExamples)
@click.option("--input-path", type=click.Path(path_type=Path))
@click.option("--spot/--no-spot", default=None)
@click.argument("names", nargs=-1)
@json_option
def show(input_path: Path | None, spot: bool | None, names: tuple[str, ...], as_json: JsonFields | None) -> None:
    pass


@click.command(cls=CommandWithExamples)
@json_option
def list_all(as_json: JsonFields | None) -> None:
    pass


@click.command(cls=CommandWithExamples)
@result_option("TrainingJobName", "TrainingJobStatus")
def act(as_json: JsonFields | None) -> None:
    pass


def test_every_option_can_be_written_with_underscores() -> None:
    for words in (["--input-path", "a_b", "--no-spot"], ["--input_path=a_b", "--no_spot"]):
        assert parsed(show, *words).params["input_path"] == Path("a_b")
        assert parsed(show, *words).params["spot"] is False


@pytest.mark.parametrize(
    ("words", "fields", "names"),
    [
        (["--json", "mnist"], (), ("mnist",)),
        (["mnist", "--json"], (), ("mnist",)),
        (["--json", "Name", "mnist"], ("Name",), ("mnist",)),
        (["--json", "name,status", "mnist"], ("name", "status"), ("mnist",)),
        (["--json=name", "mnist"], ("name",), ("mnist",)),
        (["--json", "--", "--json"], (), ("--json",)),
    ],
)
def test_fields_of_json_are_told_from_the_names_of_jobs(
    words: list[str], fields: tuple[str, ...], names: tuple[str, ...]
) -> None:
    context = parsed(show, *words)
    assert (context.params["as_json"], context.params["names"]) == (JsonFields(fields), names)


def test_where_a_command_takes_no_names_every_word_is_a_field() -> None:
    assert parsed(list_all, "--json", "name").params["as_json"] == JsonFields(("name",))
    assert parsed(list_all).params["as_json"] is None


def test_a_command_that_acts_refuses_an_unknown_field_first() -> None:
    assert parsed(act, "--json", "trainingjobname").params["as_json"] == JsonFields(("TrainingJobName",))
    with pytest.raises(click.BadParameter, match=r'no field "Nme". The fields are TrainingJobName, TrainingJobStatus'):
        parsed(act, "--json", "Nme")


def test_selected_fields_are_those_of_the_items_of_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(JOBS, JsonFields(("trainingjobstatus",)), items="Jobs")
    assert json.loads(capsys.readouterr().out) == {"Jobs": [{"TrainingJobStatus": "Failed"}]}
    print_json(JOBS, JsonFields(), items="Jobs")
    assert json.loads(capsys.readouterr().out) == JOBS


def test_a_field_without_a_value_is_null_and_an_unknown_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"A": 1}, JsonFields(("a", "B")), optional=("B",))
    assert json.loads(capsys.readouterr().out) == {"A": 1, "B": None}
    with pytest.raises(Failure, match='There is no field "C"'):
        print_json({"A": 1}, JsonFields(("C",)))


def test_our_own_documents_have_the_keys_of_the_api() -> None:
    assert pascal_case_keys({"memory_bytes": 1, "rows": [{"ok": True}]}) == {"MemoryBytes": 1, "Rows": [{"Ok": True}]}
