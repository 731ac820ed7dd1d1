"""The rules of the job, as the agent wrote them for the processes that evaluate them."""

import json
from collections.abc import Sequence
from pathlib import Path

from trainyard.foundation.errors import Corrupt
from trainyard.link.contract import RuleSpec
from trainyard.link.event_protocol import RULES_CONFIG


def read_rules(ml: str) -> Sequence[RuleSpec]:
    """Return the rules of the job; none if the agent wrote no file."""
    file = Path(ml, RULES_CONFIG)
    try:
        return [RuleSpec(**values) for values in json.loads(file.read_bytes())]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        raise Corrupt(f"{file} is not a list of rules: {error}.") from error
