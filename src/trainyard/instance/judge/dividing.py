"""Which rules are judged in the process that trains, and which beside it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainyard.foundation.errors import Corrupt
from trainyard.insight.rules.catalog import make_rule
from trainyard.insight.rules.contract import DebuggerRule, WritesFiles
from trainyard.link.contract import RuleSpec
from trainyard.link.told import RULES_CONFIG


def is_judged_beside(word: str, parameters: Mapping[str, str]) -> bool:
    """Whether a rule of ours has to be judged beside the program. InvalidRequest when there is no such rule."""
    return needs_judge(make_rule(word, parameters))


def needs_judge(rule: DebuggerRule) -> bool:
    """Whether it needs what the process of one worker has not: raw values, other workers or runs, files, patience."""
    waits = getattr(type(rule), "idle", None) is not DebuggerRule.idle
    others = any(need.is_raw or need.is_of_all_workers or need.other_runs for need in rule.needs.parts)
    return waits or others or isinstance(rule, WritesFiles)


def read_rules(ml: str) -> Sequence[RuleSpec]:
    """The rules of the job, as the agent has laid them down; none where it has not."""
    file = Path(ml, RULES_CONFIG)
    try:
        return [RuleSpec(**values) for values in json.loads(file.read_bytes())]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError) as error:
        raise Corrupt(f"{file} is no list of rules: {error}.") from error
