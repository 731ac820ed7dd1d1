"""The content of debughookconfig.json."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainyard.formats.tensors.contract import Mode
from trainyard.foundation.errors import InvalidRequest
from trainyard.instance.hook.configuration import HookConfig, Workers, load_config, parse_config
from trainyard.instance.hook.contract import TensorRequest
from trainyard.instance.hook.selection import SaveRequest


def config(hook: dict[str, Any] | None = None, **collections: dict[str, Any]) -> HookConfig:
    named = [{"CollectionName": name, "CollectionParameters": own} for name, own in collections.items()]
    return parse_config({"LocalPath": "/tmp/t", "HookParameters": hook, "CollectionConfigurations": named})


def due(asked: HookConfig, collection: str, mode: Mode, steps: range) -> list[int]:
    selection = asked.selection()
    return [step for step in steps if collection in selection.due(mode, step)]


def test_the_default_saves_losses_every_500_steps_of_the_first_worker_to_the_default_folder() -> None:
    asked = parse_config({"HookParameters": None, "CollectionConfigurations": None})
    assert asked.folder == Path("/opt/ml/output/tensors")
    assert asked.included == {"losses"}
    assert due(asked, "losses", Mode.TRAIN, range(1001)) == [0, 500, 1000]
    assert asked.workers is Workers.ONE
    assert asked.budget == 0.01


def test_parameters_for_one_mode_override_those_for_all() -> None:
    asked = config({"save_interval": "4", "eval.save_interval": "2", "train.start_step": "5", "train.end_step": "13"})
    assert due(asked, "losses", Mode.TRAIN, range(20)) == [8, 12]
    assert due(asked, "losses", Mode.EVAL, range(7)) == [0, 2, 4, 6]
    assert due(asked, "losses", Mode.PREDICT, range(9)) == [0, 4, 8]


def test_listed_steps_are_saved_besides_those_of_the_interval() -> None:
    asked = config({"save_interval": "10", "save_steps": "3, 7", "end_step": "15"})
    assert due(asked, "losses", Mode.TRAIN, range(30)) == [0, 3, 7, 10]


def test_a_collections_own_parameters_override_the_hooks() -> None:
    asked = config({"save_interval": "5", "train.save_interval": "3"}, weights={}, gradients={"save_interval": "2"})
    assert due(asked, "weights", Mode.TRAIN, range(7)) == [0, 3, 6]
    assert due(asked, "gradients", Mode.TRAIN, range(5)) == [0, 2, 4]
    assert asked.included == {"losses", "weights", "gradients"}


def test_tensors_are_found_by_regexes_anywhere_in_their_names() -> None:
    asked = config(relus={"include_regex": "relu_input,conv.{1,2}_output"}).selection()
    assert asked.settings("features.relu_input_0").included == ("relus",)
    assert asked.settings("conv12_output_0").included == ("relus",)
    assert asked.settings("linear_output_0").included == ()


@pytest.mark.parametrize(
    ("name", "collections"),
    [
        ("Net_fc.weight", ("all", "weights")),
        ("Net_fc.bias", ("all", "biases")),
        ("gradient/Net_fc.weight", ("all", "gradients")),
        ("CrossEntropyLoss_output_0", ("all", "losses")),
        ("CrossEntropyLoss_input_0", ("all",)),
        ("optimizer/exp_avg/Net_fc.weight", ("all", "optimizer_variables")),
    ],
)
def test_tensors_are_in_the_collections_of_their_names(name: str, collections: tuple[str, ...]) -> None:
    assert config().selection().settings(name).collections == collections


def test_the_hooks_own_regexes_are_the_default_collection() -> None:
    asked = config({"include_regex": "relu"})
    assert asked.included == {"losses", "default"}
    assert asked.selection().settings("relu_output_0").included == ("default",)


def test_save_all_saves_everything() -> None:
    assert config({"save_all": "true"}).selection().settings("anything").included == ("all",)


def test_values_are_saved_unless_reductions_are_configured() -> None:
    asked = config(weights={}, gradients={"reductions": "min,abs_mean,l2_norm,prod"}, biases={"reductions": "max"})
    selection = asked.selection()
    everything = frozenset({"weights", "gradients", "biases"})
    assert selection.save_request(selection.settings("Net_w.weight"), everything) == SaveRequest(is_raw=True)
    prod = SaveRequest(is_raw=False, extras=frozenset({"prod"}))
    assert selection.save_request(selection.settings("gradient/Net_w.weight"), everything) == prod
    assert selection.save_request(selection.settings("Net_w.bias"), everything) == SaveRequest()
    assert selection.save_request(selection.settings("Net_w.bias"), frozenset({"weights"})) is None


def test_reductions_and_values_can_both_be_saved() -> None:
    selection = config(gradients={"reductions": "abs_min", "save_raw_tensor": "true"}).selection()
    saved = selection.save_request(selection.settings("gradient/Net_w"), frozenset({"gradients"}))
    assert saved == SaveRequest(is_raw=True, extras=frozenset({"abs_min"}))


def test_a_tensor_of_two_collections_is_saved_when_either_is_due() -> None:
    asked = config(weights={"reductions": "prod"}, mine={"include_regex": "fc", "save_histogram": "true"})
    selection = asked.selection()
    settings = selection.settings("Net_fc.weight")
    assert selection.save_request(settings, frozenset({"weights"})) == SaveRequest(extras=frozenset({"prod"}))
    both = selection.save_request(settings, frozenset({"weights", "mine"}))
    assert both == SaveRequest(is_raw=True, extras=frozenset({"prod"}), has_histogram=True)


def test_tensors_that_rules_request_are_tracked_but_not_saved() -> None:
    selection = config().selection([TensorRequest(collections=("gradients",)), TensorRequest(regexes=("relu_output",))])
    assert selection.settings("gradient/Net_fc.weight").is_tracked
    assert selection.settings("relu_output_0").is_tracked
    assert not selection.settings("Net_fc.weight").is_tracked
    assert selection.settings("gradient/Net_fc.weight").included == ()


@pytest.mark.parametrize(
    ("given", "budget"), [("2", 0.02), ("0.5", 0.005), ("none", None), ("1 %", 0.01), (None, 0.01), ("0", 0.0)]
)
def test_the_budget_is_in_percent_of_a_step(given: str | None, budget: float | None) -> None:
    assert config({"overhead_budget": given}).budget == budget


@pytest.mark.parametrize(("given", "steps"), [("2", 2), ("0", 0), (0, 0), ("", None)])
def test_the_recorder_keeps_the_configured_number_of_steps(given: object, steps: int | None) -> None:
    assert config({"record_steps": given}).record_steps == steps


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        ({"save_interval": "often"}, '"save_interval" is "often"'),
        ({"save_interval": "0"}, "interval is 0"),
        ({"save_steps": "1,-2"}, '"save_steps" is "-2"'),
        ({"include_workers": "some"}, '"include_workers" is "some"'),
        ({"reductions": "median"}, 'no reduction "median"'),
        ({"overhead_budget": "lots"}, '"overhead_budget" is "lots"'),
        ({"record_steps": "few"}, '"record_steps" is "few"'),
        ({"save_all": "perhaps"}, '"save_all" is "perhaps"'),
    ],
)
def test_invalid_values_are_refused(hook: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        config(hook)


def test_an_invalid_regex_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="not a valid Python regular expression"):
        config(mine={"include_regex": "relu("}).selection().settings("relu")


def test_a_missing_file_means_no_configuration(tmp_path: Path) -> None:
    file = tmp_path / "debughookconfig.json"
    assert load_config(file) is None
    file.write_text(json.dumps({"LocalPath": str(tmp_path), "HookParameters": {"save_interval": 3}}))
    loaded = load_config(file)
    assert loaded is not None
    assert loaded.folder == tmp_path
    file.write_text("{")
    with pytest.raises(InvalidRequest, match="cannot be read"):
        load_config(file)
