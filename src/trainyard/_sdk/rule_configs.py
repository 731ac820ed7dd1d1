"""Configurations of the built-in rules, and actions for when a rule finds an issue.

The names are those of `smdebug_rulesconfig`; scripts use them as `trainyard.debugger.rule_configs`. Those from
LossSpike on, and the last of the actions, are Trainyard's own. `trainyard rules` lists all rules with their parameters.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

# Exported: the rules on profiles.
from trainyard._sdk.profiling.rule_configs import BatchSize as BatchSize
from trainyard._sdk.profiling.rule_configs import CPUBottleneck as CPUBottleneck
from trainyard._sdk.profiling.rule_configs import Dataloader as Dataloader
from trainyard._sdk.profiling.rule_configs import GPUMemoryIncrease as GPUMemoryIncrease
from trainyard._sdk.profiling.rule_configs import IOBottleneck as IOBottleneck
from trainyard._sdk.profiling.rule_configs import LoadBalancing as LoadBalancing
from trainyard._sdk.profiling.rule_configs import LowGPUUtilization as LowGPUUtilization
from trainyard._sdk.profiling.rule_configs import MaxInitializationTime as MaxInitializationTime
from trainyard._sdk.profiling.rule_configs import OverallFrameworkMetrics as OverallFrameworkMetrics
from trainyard._sdk.profiling.rule_configs import OverallSystemUsage as OverallSystemUsage
from trainyard._sdk.profiling.rule_configs import ProfilerReport as ProfilerReport
from trainyard._sdk.profiling.rule_configs import StepOutlier as StepOutlier
from trainyard.foundation.errors import InvalidRequest

RuleConfig = dict[str, Any]

_SELDOM, _OFTEN = {"save_interval": "500"}, {"save_interval": "5"}
_PREFIX = re.compile(r"[A-Za-z0-9\-]+")
_ADDRESS = re.compile(r"[^@\s<>\",;]+@[^@\s<>\",;]+")
_PHONE = re.compile(r"\+\d{1,15}")


def vanishing_gradient() -> RuleConfig:
    """Return the rule VanishingGradient, which finds that the gradients become too small to train."""
    return _config("VanishingGradient", gradients=_SELDOM)


def similar_across_runs() -> RuleConfig:
    """Return the rule SimilarAcrossRuns, which finds that a tensor is nearly the same as in another run."""
    return _config("SimilarAcrossRuns")


def weight_update_ratio() -> RuleConfig:
    """Return the rule WeightUpdateRatio, which finds that weights change too much or too little."""
    return _config("WeightUpdateRatio", weights=_SELDOM)


def all_zero() -> RuleConfig:
    """Return the rule AllZero, which finds that too many values of a tensor are zero."""
    return _config("AllZero")


def exploding_tensor() -> RuleConfig:
    """Return the rule ExplodingTensor, which finds that a tensor has infinite or NaN values."""
    return _config("ExplodingTensor")


def unchanged_tensor() -> RuleConfig:
    """Return the rule UnchangedTensor, which finds that a tensor does not change between steps."""
    return _config("UnchangedTensor")


def loss_not_decreasing() -> RuleConfig:
    """Return the rule LossNotDecreasing, which finds that the loss does not decrease."""
    return _config("LossNotDecreasing", losses=_SELDOM)


def check_input_images() -> RuleConfig:
    """Return the rule CheckInputImages, which finds that the input images are not normalized."""
    return _config("CheckInputImages", input_image={"include_regex": ".*hybridsequential0_input_0", **_SELDOM})


def dead_relu() -> RuleConfig:
    """Return the rule DeadRelu, which finds that too many ReLU activations are always zero."""
    return _config("DeadRelu", relu_output={"include_regex": ".*relu_output", **_SELDOM})


def confusion() -> RuleConfig:
    """Return the rule Confusion, which finds that the confusion matrix of a classification is poor."""
    return _config("Confusion")


def tree_depth() -> RuleConfig:
    """Return the rule TreeDepth, which finds that an XGBoost tree is too deep."""
    return _config("TreeDepth")


def class_imbalance() -> RuleConfig:
    """Return the rule ClassImbalance, which finds that the classes of the labels are imbalanced."""
    return _config("ClassImbalance")


def overfit() -> RuleConfig:
    """Return the rule Overfit, which finds that the validation loss moves away from the training loss."""
    return _config("Overfit")


def tensor_variance() -> RuleConfig:
    """Return the rule TensorVariance, which finds that the variance of a tensor is too high or too low."""
    return _config("TensorVariance")


def overtraining() -> RuleConfig:
    """Return the rule Overtraining, which finds that the model no longer improves."""
    return _config("Overtraining")


def poor_weight_initialization() -> RuleConfig:
    """Return the rule PoorWeightInitialization, which finds that the initial weights are poor."""
    return _config("PoorWeightInitialization", relu_input={"include_regex": ".*relu_input", **_SELDOM})


def saturated_activation() -> RuleConfig:
    """Return the rule SaturatedActivation, which finds that tanh or sigmoid activations are saturated."""
    return _config("SaturatedActivation")


def nlp_sequence_ratio() -> RuleConfig:
    """Return the rule NLPSequenceRatio, which finds that too many tokens of the input sequences are padding."""
    return _config("NLPSequenceRatio", input_sequence={"include_regex": ".*embedding0_input_0", **_SELDOM})


def stalled_training_rule() -> RuleConfig:
    """Return the rule StalledTrainingRule, which finds that the training makes no progress."""
    return _config("StalledTrainingRule")


def feature_importance_overweight() -> RuleConfig:
    """Return the rule FeatureImportanceOverweight, which finds that few features carry most of the importance."""
    return _config("FeatureImportanceOverweight", feature_importance=_SELDOM)


def create_xgboost_report() -> RuleConfig:
    """Return the rule CreateXgboostReport, which writes a report of an XGBoost training."""
    return _config(
        "CreateXgboostReport",
        metrics=_OFTEN,
        feature_importance=_OFTEN,
        hyperparameters={"save_steps": "0"},
        predictions=_OFTEN,
        labels=_OFTEN,
    )


def loss_spike() -> RuleConfig:
    """Return the rule LossSpike, which finds that the loss jumps."""
    return _config("LossSpike")


def not_a_number() -> RuleConfig:
    """Return the rule NotANumber, which finds that a tensor has NaN values."""
    return _config("NotANumber")


def replica_divergence() -> RuleConfig:
    """Return the rule ReplicaDivergence, which finds that the replicas of a distributed training diverge."""
    return _config("ReplicaDivergence")


def learning_rate_too_high() -> RuleConfig:
    """Return the rule LearningRateTooHigh, which finds that the learning rate is too high."""
    return _config("LearningRateTooHigh")


def learning_rate_too_low() -> RuleConfig:
    """Return the rule LearningRateTooLow, which finds that the learning rate is too low."""
    return _config("LearningRateTooLow")


def dead_embedding() -> RuleConfig:
    """Return the rule DeadEmbedding, which finds that rows of an embedding are never updated."""
    return _config("DeadEmbedding")


def attention_entropy_collapse() -> RuleConfig:
    """Return the rule AttentionEntropyCollapse, which finds that the entropy of attention collapses."""
    return _config("AttentionEntropyCollapse")


def gradient_noise() -> RuleConfig:
    """Return the rule GradientNoise, which finds that the gradients are too noisy for the batch size."""
    return _config("GradientNoise")


def get_collection(collection_name: str) -> RuleConfig | None:
    """Return a collection as the rules request it; None if no rule requests one of that name.

    Args:
        collection_name: Name of the collection.
    """
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
    """The base of the actions: what to do when a rule finds an issue.

    Args:
        **parameters: Parameters of the action.
    """

    name = ""

    def __init__(self, **parameters: str | None) -> None:
        named = {**parameters, "name": self.name}
        self.action_parameters = {key: value for key, value in named.items() if value is not None}

    def serialize(self) -> str:
        """Return the action as the value of a rule parameter: JSON with escaped quotes."""
        return json.dumps(json.dumps(self.action_parameters))[1:-1]

    def update_training_job_prefix_if_not_specified(self, training_job_name: str) -> None:
        """Let an action that stops jobs apply to a job, unless it names another one.

        Args:
            training_job_name: Name of the job.
        """


class StopTraining(Action):
    """Stops the training job.

    Args:
        training_job_prefix: Prefix of the name of another job to stop. That job must be the only running one with the
            prefix.
    """

    name = "stoptraining"

    def __init__(self, training_job_prefix: str | None = None) -> None:
        if training_job_prefix is not None and not _PREFIX.fullmatch(training_job_prefix):
            raise InvalidRequest(
                f'training_job_prefix is "{training_job_prefix}"; it may contain letters, digits and hyphens only.'
            )
        self._has_no_prefix = training_job_prefix is None
        super().__init__(training_job_prefix=training_job_prefix)

    def update_training_job_prefix_if_not_specified(self, training_job_name: str) -> None:
        if self._has_no_prefix:
            self.action_parameters["training_job_prefix"] = training_job_name


class Email(Action):
    """Sends an email.

    Args:
        email_address: The address.
    """

    name = "email"

    def __init__(self, email_address: str) -> None:
        if not _ADDRESS.fullmatch(email_address):
            raise InvalidRequest(f'email_address is "{email_address}"; write it like you@example.com.')
        super().__init__(endpoint=email_address)


class SMS(Action):
    """Sends a text message.

    Args:
        phone_number: The number in international form, such as `+4915112345678`.
    """

    name = "sms"

    def __init__(self, phone_number: str) -> None:
        if not _PHONE.fullmatch(phone_number):
            raise InvalidRequest(f'phone_number is "{phone_number}"; write it like +4915112345678.')
        super().__init__(endpoint=phone_number)


class Webhook(Action):
    """Posts the finding as JSON to a URL.

    Args:
        url: The URL.
    """

    name = "webhook"

    def __init__(self, url: str) -> None:
        super().__init__(endpoint=url)


class Slack(Action):
    """Posts the finding to an incoming webhook of Slack or of a compatible service.

    Args:
        url: URL of the webhook.
    """

    name = "slack"

    def __init__(self, url: str) -> None:
        super().__init__(endpoint=url)


class CheckpointThenStop(Action):
    """Saves a checkpoint of the model and the optimizer, then stops the job."""

    name = "checkpointthenstop"


class Command(Action):
    """Runs a command that the administrator of the yard has defined.

    Args:
        command_name: Name of the command.
    """

    name = "command"

    def __init__(self, command_name: str) -> None:
        super().__init__(endpoint=command_name)


class ActionList:
    """Several actions.

    Args:
        *actions: The actions.
    """

    def __init__(self, *actions: Action) -> None:
        if not all(isinstance(action, Action) for action in actions):
            raise InvalidRequest("ActionList takes actions, such as StopTraining() or Email(address).")
        self.actions = actions

    def update_training_job_prefix_if_not_specified(self, training_job_name: str) -> None:
        """Let the actions that stop jobs apply to a job, unless they name another one.

        Args:
            training_job_name: Name of the job.
        """
        for action in self.actions:
            action.update_training_job_prefix_if_not_specified(training_job_name)

    def serialize(self) -> str:
        """Return the actions as the value of a rule parameter."""
        return f"[{', '.join(action.serialize() for action in self.actions)}]"


def parse_actions(serialized: str, training_job_name: str) -> Action | ActionList:
    """Return the actions of a rule in a job description.

    An action that stops the described job becomes one that stops the job it is next used for.
    """
    try:
        parsed = json.loads(json.loads(f'"{serialized}"'))
    except ValueError:
        # The quotes need not be escaped.
        parsed = json.loads(serialized)
    if isinstance(parsed, Mapping):
        return _parse_action(parsed, training_job_name)
    return ActionList(*(_parse_action(each, training_job_name) for each in parsed))


def _parse_action(parsed: Mapping[str, str], training_job_name: str) -> Action:
    prefix = parsed.get("training_job_prefix", training_job_name)
    if parsed["name"] == StopTraining.name and prefix == training_job_name:
        return StopTraining()
    action = Action()
    action.action_parameters = dict(parsed)
    return action


def is_valid_action_object(actions: object) -> bool:
    """Return whether a value is an action or a list of actions.

    Args:
        actions: The value to check.
    """
    return isinstance(actions, Action | ActionList)


def _config(name: str, **collections: Mapping[str, str]) -> RuleConfig:
    rule = {"RuleConfigurationName": name, "RuleParameters": {"rule_to_invoke": name}}
    config: RuleConfig = {"DebugRuleConfiguration": rule}
    if collections:
        config["CollectionConfigurations"] = [_collection(each, given) for each, given in collections.items()]
    return config


def _collection(name: str, parameters: Mapping[str, str]) -> RuleConfig:
    return {"CollectionName": name, "CollectionParameters": dict(parameters)}
