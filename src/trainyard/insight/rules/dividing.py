"""Which rules are judged in the process that trains, and which beside it."""

from trainyard.insight.rules.contract import DebuggerRule, WritesFiles


def is_judged_beside(rule: DebuggerRule) -> bool:
    """Whether it needs what the process of one worker has not: raw values, other workers or runs, files, patience."""
    waits = getattr(type(rule), "idle", None) is not DebuggerRule.idle
    others = any(need.is_raw or need.is_of_all_workers or need.other_runs for need in rule.needs.parts)
    return waits or others or isinstance(rule, WritesFiles)
