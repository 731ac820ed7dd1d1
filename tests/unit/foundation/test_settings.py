from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.settings import (
    parse_duration,
    parse_setting,
    read_settings,
    setting,
    setting_rows,
    setting_values,
    value_text,
)


@dataclass(frozen=True, slots=True)
class Sample:
    host: str = setting("127.0.0.1", help="Where.")
    port: int = setting(4780, help="Which port.")
    heartbeat: timedelta = setting(timedelta(seconds=15), help="How often.")
    strict: bool = setting(False, help="Whether to refuse.")


def read(file: Path | None = None, environment: Mapping[str, str] | None = None) -> Sample:
    return read_settings(Sample, file=file, environment=environment or {}, prefix="SAMPLE_")


def test_without_file_and_environment_the_defaults_hold(tmp_path: Path) -> None:
    assert read(tmp_path / "absent.toml") == Sample()


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('host = "::1"\nport = 1\nheartbeat = "250ms"\nstrict = true\n')
    settings = read(file, {"SAMPLE_PORT": "2"})
    assert settings == Sample(host="::1", port=2, heartbeat=timedelta(milliseconds=250), strict=True)


def test_an_unknown_name_in_the_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("prot = 1\n")
    with pytest.raises(InvalidRequest, match='"prot"'):
        read(file)


def test_a_file_that_is_not_toml_is_refused_with_its_path(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("port: 1\n")
    with pytest.raises(InvalidRequest, match=r"settings\.toml is not valid TOML"):
        read(file)


@pytest.mark.parametrize(
    ("variable", "value"), [("SAMPLE_PORT", "many"), ("SAMPLE_STRICT", "maybe"), ("SAMPLE_HEARTBEAT", "5 parsecs")]
)
def test_a_bad_value_is_refused_with_the_value(variable: str, value: str) -> None:
    with pytest.raises(InvalidRequest, match=value):
        read(environment={variable: value})


@pytest.mark.parametrize(("text", "seconds"), [("250ms", 0.25), ("15s", 15), ("1.5m", 90), ("2h", 7200), ("1d", 86400)])
def test_durations_have_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


def test_the_table_has_a_row_for_each_setting() -> None:
    table = setting_rows(Sample, "SAMPLE_")
    assert [(row.name, row.variable, row.default) for row in table] == [
        ("host", "SAMPLE_HOST", "127.0.0.1"),
        ("port", "SAMPLE_PORT", "4780"),
        ("heartbeat", "SAMPLE_HEARTBEAT", "15s"),
        ("strict", "SAMPLE_STRICT", "false"),
    ]
    assert table[0].help == "Where."


def test_each_value_tells_where_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('host = "::1"\nport = 1\n')
    found = setting_values(Sample, file=file, environment={"SAMPLE_PORT": "2"}, prefix="SAMPLE_")
    assert [(each.name, each.value, each.source) for each in found] == [
        ("host", "::1", "file"),
        ("port", "2", "environment"),
        ("heartbeat", "15s", "default"),
        ("strict", "false", "default"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("port", "many", 'port is "many", which is not a whole number.'),
        ("strict", "maybe", "which is not true or false"),
        ("heartbeat", "3 weeks", "is not a duration"),
        ("prot", "3", 'There is no setting "prot". Did you mean "port"?'),
    ],
)
def test_a_value_that_does_not_fit_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse_setting(Sample, name, text)
    assert message in raised.value.message


@pytest.mark.parametrize("text", ["30d", "36h", "10m", "75s", "0.25s", "0s"])
def test_a_duration_is_shown_in_its_largest_unit(text: str) -> None:
    assert value_text(parse_duration(text)) == text
