"""The rules that an agent writes for the processes that evaluate them."""

import json
from pathlib import Path

import pytest

from trainyard.foundation.errors import Corrupt
from trainyard.instance.rule_evaluation.rules_config import read_rules
from trainyard.link.contract import RuleSpec
from trainyard.link.event_protocol import RULES_CONFIG


def test_the_rules_of_a_job_are_those_that_its_agent_wrote(tmp_path: Path) -> None:
    assert read_rules(str(tmp_path)) == []
    file = tmp_path / RULES_CONFIG
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps([{"name": "a", "rule": "AllZero", "parameters": {"threshold": "90"}}]))
    assert read_rules(str(tmp_path)) == [RuleSpec("a", "AllZero", {"threshold": "90"})]
    file.write_text('[{"what": 1}]')
    with pytest.raises(Corrupt, match="is not a list of rules"):
        read_rules(str(tmp_path))
