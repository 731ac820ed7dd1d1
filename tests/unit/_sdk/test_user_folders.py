from pathlib import Path

import pytest

from trainyard._sdk.user_folders import cache_folder, config_folder


def test_the_cache_lies_where_the_user_keeps_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/anna")
    assert cache_folder({}) == Path("/home/anna/.cache/trainyard")
    assert cache_folder({"XDG_CACHE_HOME": "/fast"}) == Path("/fast/trainyard")
    assert cache_folder({"XDG_CACHE_HOME": "relative"}) == Path("/home/anna/.cache/trainyard")


def test_the_configuration_lies_where_the_user_keeps_configurations() -> None:
    assert config_folder({"HOME": "/home/anna"}) == Path("/home/anna/.config/trainyard")
    assert config_folder({"HOME": "/home/anna", "XDG_CONFIG_HOME": "/etc/anna"}) == Path("/etc/anna/trainyard")
