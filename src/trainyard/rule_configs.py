"""The built-in rules as one asks for them, and what shall be done when one finds something.

The names are those of `smdebug_rulesconfig`, at which scripts look through `trainyard.debugger.rule_configs`; those at
the end of each half are ours. `trainyard rules` lists all rules with their parameters.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from trainyard.foundation.errors import InvalidRequest

RuleConfig = dict[str, Any]

_SELDOM, _OFTEN = {"save_interval": "500"}, {"save_interval": "5"}
_PREFIX = re.compile(r"[A-Za-z0-9\-]+")
_ADDRESS = re.compile(r"[^@\s<>\",;]+@[^@\s<>\",;]+")
_PHONE = re.compile(r"\+\d{1,15}")
_PROFILER_RULES = (
    *("BatchSize", "CPUBottleneck", "GPUMemoryIncrease", "IOBottleneck", "LoadBalancing", "LowGPUUtilization"),
    *("MaxInitializationTime", "OverallSystemUsage", "ProfilerReport", "StepOutlier"),
)


def __getattr__(name: str) -> object:
    if name in _PROFILER_RULES:
        raise InvalidRequest(f"Trainyard does not serve the profiler rule {name} yet; leave it out.")
    raise AttributeError(f"module 'trainyard.rule_configs' has no attribute '{name}'")


def vanishing_gradient() -> RuleConfig:
    return _config("VanishingGradient", gradients=_SELDOM)


def similar_across_runs() -> RuleConfig:
    return _config("SimilarAcrossRuns")


def weight_update_ratio() -> RuleConfig:
    return _config("WeightUpdateRatio", weights=_SELDOM)


def all_zero() -> RuleConfig:
    return _config("AllZero")


def exploding_tensor() -> RuleConfig:
    return _config("ExplodingTensor")


def unchanged_tensor() -> RuleConfig:
    return _config("UnchangedTensor")


def loss_not_decreasing() -> RuleConfig:
    return _config("LossNotDecreasing", losses=_SELDOM)


def check_input_images() -> RuleConfig:
    return _config("CheckInputImages", input_image={"include_regex": ".*hybridsequential0_input_0", **_SELDOM})


def dead_relu() -> RuleConfig:
    return _config("DeadRelu", relu_output={"include_regex": ".*relu_output", **_SELDOM})


def confusion() -> RuleConfig:
    return _config("Confusion")


def tree_depth() -> RuleConfig:
    return _config("TreeDepth")


def class_imbalance() -> RuleConfig:
    return _config("ClassImbalance")


def overfit() -> RuleConfig:
    return _config("Overfit")


def tensor_variance() -> RuleConfig:
    return _config("TensorVariance")


def overtraining() -> RuleConfig:
    return _config("Overtraining")


def poor_weight_initialization() -> RuleConfig:
    return _config("PoorWeightInitialization", relu_input={"include_regex": ".*relu_input", **_SELDOM})


def saturated_activation() -> RuleConfig:
    return _config("SaturatedActivation")


def nlp_sequence_ratio() -> RuleConfig:
    return _config("NLPSequenceRatio", input_sequence={"include_regex": ".*embedding0_input_0", **_SELDOM})


def stalled_training_rule() -> RuleConfig:
    return _config("StalledTrainingRule")


def feature_importance_overweight() -> RuleConfig:
    return _config("FeatureImportanceOverweight", feature_importance=_SELDOM)


def create_xgboost_report() -> RuleConfig:
    return _config(
        "CreateXgboostReport",
        metrics=_OFTEN,
        feature_importance=_OFTEN,
        hyperparameters={"save_steps": "0"},
        predictions=_OFTEN,
        labels=_OFTEN,
    )


def loss_spike() -> RuleConfig:
    return _config("LossSpike")


def not_a_number() -> RuleConfig:
    return _config("NotANumber")


def replica_divergence() -> RuleConfig:
    return _config("ReplicaDivergence")


def learning_rate_too_high() -> RuleConfig:
    return _config("LearningRateTooHigh")


def learning_rate_too_low() -> RuleConfig:
    return _config("LearningRateTooLow")


def dead_embedding() -> RuleConfig:
    return _config("DeadEmbedding")


def attention_entropy_collapse() -> RuleConfig:
    return _config("AttentionEntropyCollapse")


def gradient_noise() -> RuleConfig:
    return _config("GradientNoise")


def get_collection(collection_name: str) -> RuleConfig | None:
    """A collection as rules ask for it, or None for a name that no rule asks for."""
    kinds = {
        "weights": _SELDOM,
        "gradients": _SELDOM,
        "losses": _SELDOM,
        "input_image": {"include_regex": ".*hybridsequential0_input_0", **_SELDOM},
        "relu_output": {"include_regex": ".*relu_output", **_SELDOM},
        "relu_input": {"include_regex": ".*relu_input", **_SELDOM},
        "input_sequence": {"include_regex": ".*embedding0_input_0", **_SELDOM},
    }
    return _collection(collection_name, kinds[collection_name]) if collection_name in kinds else None


class Action:
    """Something that is done when a rule finds something."""

    name = ""

    def __init__(self, **parameters: str | None) -> None:
        named = {**parameters, "name": self.name}
        self.action_parameters = {key: value for key, value in named.items() if value is not None}

    def serialize(self) -> str:
        """The action as a rule's parameter holds it: JSON with escaped quotes."""
        return json.dumps(json.dumps(self.action_parameters))[1:-1]

    def update_training_job_prefix_if_not_specified(self, training_job_name: str) -> None:
        """Let an action that stops jobs mean the one that is made, unless it names another."""


class StopTraining(Action):
    """Stops the training job or, given a prefix, the one that runs and whose name begins so, if it is the only one."""

    name = "stoptraining"

    def __init__(self, training_job_prefix: str | None = None) -> None:
        if training_job_prefix is not None and not _PREFIX.fullmatch(training_job_prefix):
            raise InvalidRequest(
                f'training_job_prefix is "{training_job_prefix}"; it can have letters, digits and hyphens.'
            )
        self._is_of_any = training_job_prefix is None
        super().__init__(training_job_prefix=training_job_prefix)

    def update_training_job_prefix_if_not_specified(self, training_job_name: str) -> None:
        if self._is_of_any:
            self.action_parameters["training_job_prefix"] = training_job_name


class Email(Action):
    """Sends a mail."""

    name = "email"

    def __init__(self, email_address: str) -> None:
        if not _ADDRESS.fullmatch(email_address):
            raise InvalidRequest(f'email_address is "{email_address}"; write it like you@example.com.')
        super().__init__(endpoint=email_address)


class SMS(Action):
    """Sends a text message."""

    name = "sms"

    def __init__(self, phone_number: str) -> None:
        if not _PHONE.fullmatch(phone_number):
            raise InvalidRequest(f'phone_number is "{phone_number}"; write it like +4915112345678.')
        super().__init__(endpoint=phone_number)


class Webhook(Action):
    """Posts what was found as JSON to a URL."""

    name = "webhook"

    def __init__(self, url: str) -> None:
        super().__init__(endpoint=url)


class Slack(Action):
    """Posts what was found to an incoming webhook of Slack, or of what understands the same."""

    name = "slack"

    def __init__(self, url: str) -> None:
        super().__init__(endpoint=url)


class CheckpointThenStop(Action):
    """Has the job save a checkpoint of its model and its optimizer, and stops it."""

    name = "checkpointthenstop"


class Command(Action):
    """Runs a command of the yard, which its administrator has named so."""

    name = "command"

    def __init__(self, command_name: str) -> None:
        super().__init__(endpoint=command_name)


class ActionList:
    """Several actions."""

    def __init__(self, *actions: Action) -> None:
        if not all(isinstance(action, Action) for action in actions):
            raise InvalidRequest("ActionList takes actions, such as StopTraining() or Email(address).")
        self.actions = actions

    def update_training_job_prefix_if_not_specified(self, training_job_name: str) -> None:
        for action in self.actions:
            action.update_training_job_prefix_if_not_specified(training_job_name)

    def serialize(self) -> str:
        return f"[{', '.join(action.serialize() for action in self.actions)}]"


def actions_of(serialized: str, training_job_name: str) -> Action | ActionList:
    """The actions of a described rule. One that stops the described job stops, of the next, the one that is made."""
    try:
        told = json.loads(json.loads(f'"{serialized}"'))
    except ValueError:  # quotes need not be escaped
        told = json.loads(serialized)
    if isinstance(told, Mapping):
        return _action_of(told, training_job_name)
    return ActionList(*(_action_of(each, training_job_name) for each in told))


def _action_of(told: Mapping[str, str], training_job_name: str) -> Action:
    if told["name"] == StopTraining.name and told.get("training_job_prefix", training_job_name) == training_job_name:
        return StopTraining()
    action = Action()
    action.action_parameters = dict(told)
    return action


def is_valid_action_object(actions: object) -> bool:
    return isinstance(actions, Action | ActionList)


def _config(name: str, **collections: Mapping[str, str]) -> RuleConfig:
    rule = {"RuleConfigurationName": name, "RuleParameters": {"rule_to_invoke": name}}
    config: RuleConfig = {"DebugRuleConfiguration": rule}
    if collections:
        config["CollectionConfigurations"] = [_collection(each, given) for each, given in collections.items()]
    return config


def _collection(name: str, parameters: Mapping[str, str]) -> RuleConfig:
    return {"CollectionName": name, "CollectionParameters": dict(parameters)}
