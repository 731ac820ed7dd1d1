"""The parameters of a job's configuration for each mode."""

from smdebug import modes
from smdebug.core.json_config import parse_save_config_dict, parse_save_config_modes_dict


def test_a_parameter_for_one_mode_overrides_the_one_for_all() -> None:
    parsed = parse_save_config_modes_dict(
        {"save_interval": "10", "eval.save_interval": "2", "train.save_steps": "1, 3"}
    )
    assert parsed[modes.TRAIN] == {"save_interval": "10", "save_steps": [1, 3]}
    assert parsed[modes.EVAL] == {"save_interval": "2"}
    assert parsed[modes.GLOBAL] == {"save_interval": "10"}


def test_a_collections_config_overrides_the_hooks() -> None:
    hook = parse_save_config_modes_dict({"save_interval": "10", "train.end_step": "50"})
    collection = parse_save_config_modes_dict({"save_interval": "3"}, hook)
    assert collection[modes.TRAIN] == {"save_interval": "3", "end_step": "50"}
    assert collection[modes.EVAL] == {"save_interval": "3"}


def test_other_parameters_are_not_about_steps() -> None:
    assert parse_save_config_dict({"reductions": "min", "include_workers": "all"}) == {}
