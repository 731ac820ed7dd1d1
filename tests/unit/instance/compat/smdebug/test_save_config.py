"""The steps at which a script saves tensors."""

import pytest
from smdebug import SaveConfig, SaveConfigMode, modes
from smdebug.exceptions import SMDebugTypeError, SMDebugValueError


def saved(config: SaveConfig, mode: modes = modes.TRAIN, steps: int = 20) -> list[int]:
    return [step for step in range(steps) if config.should_save_step(mode, step)]


def test_the_default_is_every_500th_step_of_every_mode() -> None:
    config = SaveConfig()
    for mode in modes:
        assert saved(config, mode, steps=1001) == [0, 500, 1000]


def test_listed_steps_are_saved_besides_those_of_the_interval() -> None:
    assert saved(SaveConfig(save_interval=5, save_steps=[1, 7])) == [0, 1, 5, 7, 10, 15]


def test_the_range_ends_before_its_last_step_and_does_not_bound_the_list() -> None:
    config = SaveConfig(save_interval=2, start_step=3, end_step=8, save_steps=[0, 19])
    assert saved(config) == [0, 4, 6, 19]


def test_each_mode_has_steps_of_its_own() -> None:
    config = SaveConfig(
        {
            modes.TRAIN: SaveConfigMode(save_interval=4),
            modes.EVAL: SaveConfigMode(save_steps=[3], start_step=9, end_step=9),
        }
    )
    assert saved(config) == [0, 4, 8, 12, 16]
    assert saved(config, modes.EVAL) == [3]


def test_a_mode_without_a_config_takes_the_hooks_default() -> None:
    config = SaveConfig({modes.TRAIN: SaveConfigMode(save_interval=4)})
    with pytest.raises(SMDebugValueError, match="The mode EVAL has no config"):
        config.should_save_step(modes.EVAL, 0)
    config.merge_default_save_config(SaveConfig(save_interval=7))
    assert saved(config, modes.EVAL) == [0, 7, 14]
    assert saved(config, modes.TRAIN) == [0, 4, 8, 12, 16]


def test_equivalent_forms_parse_to_the_same_config() -> None:
    wanted = SaveConfig(save_interval=3)
    assert SaveConfig.parse(None) == SaveConfig()
    assert SaveConfig.parse(wanted) is wanted
    assert SaveConfig.parse(SaveConfigMode(save_interval=3)) == wanted
    assert SaveConfig.parse({mode: {"save_interval": 3} for mode in modes}) == wanted
    assert SaveConfig.parse({mode.name: SaveConfigMode(save_interval="3") for mode in modes}) == wanted
    with pytest.raises(SMDebugTypeError, match="is not a SaveConfig"):
        SaveConfig.parse(3)


def test_json_round_trip() -> None:
    config = SaveConfig({modes.TRAIN: SaveConfigMode(2, 1, 9, [5]), modes.PREDICT: SaveConfigMode(save_interval=8)})
    assert SaveConfig.from_json(config.to_json()) == config


def test_invalid_configs_are_refused() -> None:
    with pytest.raises(SMDebugValueError, match="list of whole numbers"):
        SaveConfig(save_steps="1,2")
    with pytest.raises(SMDebugValueError, match="not a whole number"):
        SaveConfigMode(save_interval="often")
    with pytest.raises(SMDebugValueError, match="1 or more"):
        SaveConfigMode(save_interval=0)
    with pytest.raises(SMDebugValueError, match="is not a mode"):
        SaveConfig({"train": SaveConfigMode()})
    with pytest.raises(SMDebugValueError, match="is not a SaveConfigMode"):
        SaveConfig().set_save_config(modes.TRAIN, 5)
