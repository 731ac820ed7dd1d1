import re
from pathlib import Path

import click
import pytest

from trainyard.cli.tuning.arguments import metrics_of, ranges_of, resource_of, usual_regex
from trainyard.cli.tuning.start import start
from trainyard.parameter import CategoricalParameter, ContinuousParameter, IntegerParameter


def test_a_range_is_whole_where_both_its_ends_are() -> None:
    found = ranges_of(["layers=1..8", "lr=log:1e-5..1e-1", "momentum=reverse-log:0.5..0.999", "x=-1..1.5"], [])
    assert isinstance(found["layers"], IntegerParameter)
    assert found["layers"].as_tuning_range("layers")["MaxValue"] == "8"
    assert isinstance(found["lr"], ContinuousParameter)
    assert found["lr"].as_tuning_range("lr") == {
        "Name": "lr",
        "MinValue": "1e-05",
        "MaxValue": "0.1",
        "ScalingType": "Logarithmic",
    }
    assert found["momentum"].as_tuning_range("m")["ScalingType"] == "ReverseLogarithmic"
    assert isinstance(found["x"], ContinuousParameter)
    assert (found["x"].min_value, found["x"].max_value) == (-1.0, 1.5)


def test_a_choice_is_one_of_several_texts() -> None:
    found = ranges_of([], ["opt=adam,sgd"])["opt"]
    assert isinstance(found, CategoricalParameter)
    assert found.values == ["adam", "sgd"]


@pytest.mark.parametrize("text", ["lr", "lr=1", "lr=1..x", "lr=exp:1..2", "=1..2", "lr=1..", "lr=..2"])
def test_the_error_for_an_invalid_range_says_how_to_write_one(text: str) -> None:
    with pytest.raises(click.UsageError, match=re.escape(f"--range {text}")):
        ranges_of([text], [])


def test_values_that_were_given_as_a_range_are_shown_as_a_choice() -> None:
    with pytest.raises(click.UsageError, match="--choice opt=adam,sgd"):
        ranges_of(["opt=adam,sgd"], [])


def test_one_hyperparameter_has_one_range() -> None:
    with pytest.raises(click.UsageError, match='"lr" has two ranges'):
        ranges_of(["lr=0..1"], ["lr=1,2"])


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("val_loss: 0.25", "0.25"),
        ("epoch 3 val_loss=1e-05 acc=0.9", "1e-05"),
        ('{"val_loss": -3.5, "epoch": 1}', "-3.5"),
        ("val_loss = nan", "nan"),
        ("my_val_loss: 0.25", None),
        ("val_loss_ema: 0.25", None),
    ],
)
def test_an_objective_without_a_regex_is_read_as_it_is_usually_written(line: str, value: str | None) -> None:
    found = re.search(usual_regex("val_loss"), line)
    assert (found and found[1]) == value


def test_metrics_are_those_given_and_the_objective() -> None:
    given = metrics_of(["acc=Accuracy is ([0-9.]+)"], [("loss", "Loss: (.*)")], objective="acc")
    assert given == [{"Name": "acc", "Regex": "Accuracy is ([0-9.]+)"}, {"Name": "loss", "Regex": "Loss: (.*)"}]
    assert [each["Name"] for each in metrics_of([], [], objective="acc")] == ["acc"]


def test_resources_of_hyperband_are_whole_numbers() -> None:
    assert (resource_of("1..27").least, resource_of("1..27").most) == (1, 27)
    with pytest.raises(click.UsageError, match=re.escape("--resource 3: write LEAST..MOST")):
        resource_of("3")


def test_a_file_gives_the_options_that_the_command_line_does_not(tmp_path: Path) -> None:
    spec = tmp_path / "study.toml"
    spec.write_text(
        """
        objective = "acc"
        maximize = true
        trials = 50
        early-stopping = "curve"
        warm-start = ["parent"]
        [range]
        lr = "log:1e-5..1e-1"
        [choice]
        opt = ["adam", "sgd"]
        [metric]
        acc = "Accuracy: ([0-9.]+)"
        """
    )
    for words in (["--spec", str(spec)], [f"--spec={spec}"]):
        given = start.make_context("start", ["train.py", *words, "--trials", "7"]).params
        assert (given["objective"], given["maximize"], given["trials"]) == ("acc", True, 7)
        assert (given["early_stopping"], given["warm_start"]) == ("curve", ("parent",))
        assert given["range"] == ("lr=log:1e-5..1e-1",)
        assert given["choice"] == ("opt=adam,sgd",)
        assert given["metric"] == ("acc=Accuracy: ([0-9.]+)",)


@pytest.mark.parametrize(("text", "words"), [(None, "No such file"), ("a = ", "is not valid TOML")])
def test_a_file_that_cannot_be_read_is_named(text: str | None, words: str, tmp_path: Path) -> None:
    spec = tmp_path / "study.toml"
    if text:
        spec.write_text(text)
    with pytest.raises(click.UsageError, match=words):
        start.make_context("start", ["train.py", "--spec", str(spec)])


def test_an_option_in_a_file_that_there_is_not_is_refused(tmp_path: Path) -> None:
    spec = tmp_path / "study.toml"
    spec.write_text("trails = 5")
    with pytest.raises(click.UsageError, match="has unknown options: trails"):
        start.make_context("start", ["train.py", "--spec", str(spec)])
