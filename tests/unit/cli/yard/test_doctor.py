import json
from pathlib import Path

from tests.unit.cli.conftest import Trainyard
from trainyard.engines.probe import PROBES
from trainyard.foundation.home import Home


def test_json_has_every_answer_with_what_follows(trainyard: Trainyard, user_home: Path) -> None:
    result = trainyard("doctor", "--json")

    values = json.loads(result.out)
    assert result.code == 0
    assert [row["name"] for row in values["machine"]] == [question.name for question in PROBES]
    assert all(set(row) == {"name", "ok", "detail", "consequence"} for row in values["machine"] + values["home"])
    assert values["home"][0]["detail"] == "does not exist yet"
    assert list(user_home.iterdir()) == [], "looking makes nothing"


def test_text_has_two_lines_for_each_answer(trainyard: Trainyard) -> None:
    lines = trainyard("doctor").out.splitlines()

    place = next(index for index, line in enumerate(lines) if "user namespaces" in line)
    assert lines[place].split()[0] in ("yes", "no")
    assert lines[place + 1].strip() in (PROBES[0].if_so, PROBES[0].if_not)


def test_a_home_that_is_not_sound_makes_it_fail(trainyard: Trainyard, yard: Home) -> None:
    yard.records_file.write_bytes(b"no database" * 1000)

    result = trainyard("doctor", "--json")

    assert result.code == 1
    assert any("records.sqlite" in row["detail"] for row in json.loads(result.out)["home"] if not row["ok"])


def test_a_newer_home_makes_it_fail_but_tells_of_the_machine(trainyard: Trainyard, yard: Home) -> None:
    yard.version_file.write_text('{"format": 99, "made_by": "9.0.0"}')

    result = trainyard("doctor", "--json")

    assert result.code == 1
    assert "9.0.0" in json.loads(result.out)["home"][0]["detail"]
    assert json.loads(result.out)["machine"]
