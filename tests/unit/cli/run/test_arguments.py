from typing import Any

import click
import pytest

from trainyard.cli.run.arguments import (
    HYPERPARAMETERS,
    InputArgument,
    hyperparameters,
    instance_group,
    path_input,
    s3_input,
    words_of,
)
from trainyard.cli.run.command import run
from trainyard.cli.terminal.console import CommandWithExamples
from trainyard.instance_group import InstanceGroup


def parsed(*words: str) -> click.Context:
    return run.make_context("run", list(words))


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ([], {}),
        (["--epochs", "3", "--lr", "0.1"], {"epochs": 3, "lr": 0.1}),
        (["--lr=0.1", "--name=a=b"], {"lr": 0.1, "name": "a=b"}),
        (["--shift", "-1", "--mark=--x"], {"shift": -1, "mark": "--x"}),
        (["--text", ""], {"text": ""}),
    ],
)
def test_words_after_the_dashes_are_hyperparameters(words: list[str], values: dict[str, Any]) -> None:
    assert hyperparameters(words) == values


@pytest.mark.parametrize("word", ["007", "1e-3", "1_000", "nan", "inf", "0x10", "1.50", "True", "+1"])
def test_a_word_that_a_number_would_change_stays_a_word(word: str) -> None:
    assert hyperparameters(["--x", word]) == {"x": word}


@pytest.mark.parametrize(
    ("words", "misfit"),
    [(["3"], "3"), (["--fast", "--epochs", "3"], "--fast"), (["--fast"], "--fast"), (["--=3"], "--=3")],
)
def test_a_name_without_a_value_or_a_value_without_a_name_is_refused(words: list[str], misfit: str) -> None:
    with pytest.raises(click.UsageError, match=f'"{misfit}" is not a hyperparameter'):
        hyperparameters(words)


def test_hyperparameters_are_kept_from_the_flags() -> None:
    context = parsed("train.py", "--", "--it", "x")
    assert context.meta[HYPERPARAMETERS] == {"it": "x"}
    assert context.params["it"] is None


def test_an_input_takes_a_distribution_and_a_subfolder() -> None:
    context = parsed("train.py", "-i", "data", "ShardedByS3Key", "sub", "--iis", "other", "s3://b/k", "-v", "10")
    assert path_input(words_of(context.params["input_path"])) == InputArgument("data", "data/sub", "ShardedByS3Key")
    (words,) = context.params["iis"]
    assert s3_input(words_of(words)) == InputArgument("other", "s3://b/k", "FullyReplicated")
    assert context.params["volume_size"] == 10


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["data", "FastFile"], InputArgument("data", "data", mode="FastFile")),
        (["data", "Pipe", "ShardedByS3Key"], InputArgument("data", "data", "ShardedByS3Key", "Pipe")),
        (["data", "ShardedByS3Key", "Pipe", "sub"], InputArgument("data", "data/sub", "ShardedByS3Key", "Pipe")),
    ],
)
def test_an_input_takes_a_mode_beside_its_distribution(words: list[str], meant: InputArgument) -> None:
    context = parsed("train.py", "-i", *words, "--ic", "2")
    assert path_input(words_of(context.params["input_path"])) == meant
    assert context.params["ic"] == 2


def test_a_script_may_follow_the_mode_of_an_input() -> None:
    context = parsed("-i", "data", "FastFile", "train.py")
    assert context.params["script"] == "train.py"
    assert words_of(context.params["input_path"]) == ["data", "FastFile"]


def test_a_script_may_follow_an_input() -> None:
    context = parsed("-i", "data", "train.py")
    assert context.params["script"] == "train.py"
    assert words_of(context.params["input_path"]) == ["data"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lr", "0.1"], r'no option "--lr"\. Options of the script follow two dashes: run SCRIPT -- --lr VALUE'),
        (["--epochs=3"], r'no option "--epochs"\. Options'),
        (["--instance-tpe", "x"], r'Did you mean "--instance-type"\?'),
        (
            ["-i", "data", "Fast"],
            r'"Fast" is one argument too many: the script is "train\.py"\. The modes of inputs are File, ',
        ),
    ],
)
def test_a_word_with_no_place_is_refused_with_the_place_of_those_of_the_script(words: list[str], message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        parsed("train.py", *words)


def test_dependencies_are_all_words_up_to_the_next_flag() -> None:
    context = parsed("train.py", "--dependencies", "a", "b", "--ic", "2")
    assert words_of(context.params["dependencies"]) == ["a", "b"]
    assert context.params["ic"] == 2


def test_an_input_on_s3_must_be_there() -> None:
    with pytest.raises(click.UsageError, match="give an S3 location"):
        s3_input(["other", "data"])


def test_every_flag_of_ssm_that_is_promised_is_there() -> None:
    assert isinstance(run, CommandWithExamples)
    known = {flag for parameter in run.params for flag in [*parameter.opts, *parameter.secondary_opts]}
    assert {"-p", "-t", "-e", "-i", "--iis", "--it", "--ic", "-v", "--md", "--no-spot", "-o", "-s"} <= known


def test_metrics_and_tags_are_pairs() -> None:
    context = parsed("train.py", "--md", "loss", "l=(.*)", "--md", "acc", "a=(.*)", "--tag", "k", "v", "--no-spot")
    assert context.params["md"] == (("loss", "l=(.*)"), ("acc", "a=(.*)"))
    assert context.params["tag"] == (("k", "v"),)
    assert context.params["spot"] is False


def test_a_group_has_a_name_a_type_and_a_count() -> None:
    context = parsed("train.py", "--group", "feeders=ml.c5.xlarge:2", "--group", "trainers=ml.p3.2xlarge:1")
    assert [instance_group(text) for text in context.params["group"]] == [
        InstanceGroup("feeders", "ml.c5.xlarge", 2),
        InstanceGroup("trainers", "ml.p3.2xlarge", 1),
    ]


@pytest.mark.parametrize("text", ["feeders", "feeders=ml.c5.xlarge", "=ml.c5.xlarge:2", "feeders=ml.c5.xlarge:two"])
def test_a_group_that_lacks_one_of_them_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match=f"--group {text}: write NAME=TYPE:COUNT"):
        instance_group(text)
