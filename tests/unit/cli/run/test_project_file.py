from pathlib import Path
from typing import Any

import click
import pytest

from trainyard.cli.run.arguments import HYPERPARAMETERS, words_of
from trainyard.cli.run.command import run
from trainyard.cli.run.project_file import used_options


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str, folder: str = ".") -> None:
    Path(folder).mkdir(exist_ok=True)
    Path(folder, "trainyard.toml").write_text(text)


def parsed(*words: str) -> click.Context:
    return run.make_context("run", list(words))


def values(*words: str) -> dict[str, Any]:
    return parsed(*words).params


def test_options_of_the_file_are_defaults_of_the_command_line() -> None:
    write(
        '[run]\nscript = "train.py"\ninstance-count = 2\nmax_run_mins = 5\n'
        "[run.hyperparameters]\nlr = 0.1\nlayers = 2\n"
    )

    context = parsed("--ic", "3", "--", "--lr", "0.5")

    given = context.params
    assert (given["script"], given["ic"], given["max_run_mins"]) == ("train.py", 3, 5)
    assert context.meta[HYPERPARAMETERS] == {"lr": 0.5, "layers": 2}
    assert used_options(context) == ('Options from trainyard.toml: script = "train.py", max_run_mins = 5, --layers 2')


def test_groups_on_the_command_line_replace_the_instances_of_the_file_and_the_other_way_round() -> None:
    write('[run]\ninstance-type = "ml.m5.large"\ninstance-count = 2\n')
    context = parsed("train.py", "--group", "a=ml.c5.xlarge:1")
    assert (context.params["it"], context.params["ic"], context.params["group"]) == (None, None, ("a=ml.c5.xlarge:1",))
    assert used_options(context) == ""

    write('[run]\ngroup = "a=ml.c5.xlarge:1"\n')
    assert values("train.py", "--ic", "3")["group"] == ()
    assert values("train.py")["group"] == ("a=ml.c5.xlarge:1",)


def test_the_file_beside_the_script_is_read_and_its_paths_are_relative_to_it() -> None:
    write("[run]\nic = 9\n")
    write(
        '[run]\ninput-path = ["data", "FastFile"]\ndependencies = ["lib", "/abs"]\noutput-path = "results"\n'
        'source-dir = "s3://bucket/code"\n',
        "project",
    )

    given = values("project/train.py")

    assert given["ic"] is None
    assert words_of(given["input_path"]) == ["project/data", "FastFile"]
    assert words_of(given["dependencies"]) == ["project/lib", "/abs"]
    assert given["output_path"] == Path("project/results")
    assert given["source_dir"] == "s3://bucket/code"


def test_with_a_source_folder_the_file_can_be_beside_the_script_or_in_the_folder() -> None:
    write("[run]\nic = 2\n", "src")
    (Path("src") / "deep").mkdir()
    assert values("deep/train.py", "-s", "src")["ic"] == 2

    write("[run]\nic = 3\n", "src/deep")
    assert values("deep/train.py", "-s", "src")["ic"] == 3


def test_tables_and_lists_are_options_with_several_values() -> None:
    write(
        '[run]\nuse-spot-instances = true\ngroup = ["a=ml.m5.large:1"]\n[run.md]\nloss = "loss: (.*)"\n'
        '[run.tag]\nteam = "vision"\n[run.iis]\ntrain = ["s3://b/train", "FastFile"]\nlabels = "s3://b/labels"\n'
        "[run.distribution.mpi]\nenabled = true\n"
    )

    given = values("train.py")

    assert given["spot"] is True
    assert given["group"] == ("a=ml.m5.large:1",)
    assert given["md"] == (("loss", "loss: (.*)"),)
    assert given["tag"] == (("team", "vision"),)
    assert [words_of(words) for words in given["iis"]] == [
        ["train", "s3://b/train", "FastFile"],
        ["labels", "s3://b/labels"],
    ]
    assert given["distribution"] == '{"mpi": {"enabled": true}}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[run]\ninstance_typ = 'x'", 'has no option "instance_typ". Did you mean "instance-type"?'),
        ("[run]\nhome = '/x'", "a project cannot choose the yard of its users; give --home"),
        ("[run]\nendpoint = 'http://x'", "a project cannot choose the yard of its users; give --endpoint"),
        ("[run]\nprofile = 'lab'", "a project cannot choose the yard of its users; give --profile"),
        ("[run]\nic = 'two'", "trainyard.toml: ic must be a number."),
        ("[run]\nic = 0", "trainyard.toml: ic: 0 is not in the range x>=1."),
        ("[run]\nframework-version = 2.10", "framework-version must be a text in quotes."),
        ("[run]\ninput-mode = 'Fast'", "'Fast' is not one of"),
        ("[run]\ndetach = 'yes'", "detach must be true or false."),
        ("[run]\nit = 'a'\ninstance-type = 'b'", 'has "it" and "instance-type", which are the same option.'),
        ("[run]\nmd = [['loss']]", "md: "),
        ("[run]\nsource-dir = 3", "source-dir must be a text"),
        ("[run]\nhyperparameters = 3", "hyperparameters is not a table"),
        ("[run.hyperparameters]\nlayers = [1]", "the hyperparameter layers must be a text or a number."),
        ("ic = 2", 'has "ic" outside of [run]'),
        ("run = 2", "run is not a table"),
        ("[run", "is not valid TOML"),
    ],
)
def test_a_mistake_in_the_file_is_a_usage_error_that_names_it(text: str, message: str) -> None:
    write(text)
    with pytest.raises(click.UsageError) as raised:
        parsed("train.py")
    assert message in raised.value.format_message()
    assert "trainyard.toml" in raised.value.format_message()


def test_help_needs_no_valid_file() -> None:
    write("[run")
    with pytest.raises(click.exceptions.Exit):
        parsed("-h")


def test_without_a_file_nothing_is_shown() -> None:
    assert used_options(parsed("train.py")) == ""
