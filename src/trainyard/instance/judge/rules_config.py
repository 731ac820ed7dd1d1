"""The rules of the job, as its agent has laid them down for those who judge."""

import json
from collections.abc import Sequence
from pathlib import Path

from trainyard.foundation.errors import Corrupt
from trainyard.link.contract import RuleSpec
from trainyard.link.told import RULES_CONFIG


def read_rules(ml: str) -> Sequence[RuleSpec]:
    """The rules of the job; none where the agent has laid down none."""
    file = Path(ml, RULES_CONFIG)
    try:
        return [RuleSpec(**values) for values in json.loads(file.read_bytes())]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        raise Corrupt(f"{file} is no list of rules: {error}.") from error
