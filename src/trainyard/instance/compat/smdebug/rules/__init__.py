"""Custom rules, and how to run them over a trial."""

from .req_tensors import RequiredTensors, RequiredTensorsForTrial
from .rule import Rule
from .rule_invoker import invoke_rule

__all__ = ["RequiredTensors", "RequiredTensorsForTrial", "Rule", "invoke_rule"]
