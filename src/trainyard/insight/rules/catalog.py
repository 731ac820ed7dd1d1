"""The built-in rules on tensors by name, and a function that makes one from the strings of a request."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, cast

from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.rules.contract import DebuggerRule
from trainyard.insight.rules.debugger.all_zero import AllZero
from trainyard.insight.rules.debugger.attention_entropy_collapse import AttentionEntropyCollapse
from trainyard.insight.rules.debugger.check_input_images import CheckInputImages
from trainyard.insight.rules.debugger.class_imbalance import ClassImbalance
from trainyard.insight.rules.debugger.confusion import Confusion
from trainyard.insight.rules.debugger.create_xgboost_report import CreateXgboostReport
from trainyard.insight.rules.debugger.dead_embedding import DeadEmbedding
from trainyard.insight.rules.debugger.dead_relu import DeadRelu
from trainyard.insight.rules.debugger.exploding_tensor import ExplodingTensor
from trainyard.insight.rules.debugger.feature_importance_overweight import FeatureImportanceOverweight
from trainyard.insight.rules.debugger.gradient_noise import GradientNoise
from trainyard.insight.rules.debugger.learning_rate_too_high import LearningRateTooHigh
from trainyard.insight.rules.debugger.learning_rate_too_low import LearningRateTooLow
from trainyard.insight.rules.debugger.loss_not_decreasing import LossNotDecreasing
from trainyard.insight.rules.debugger.loss_spike import LossSpike
from trainyard.insight.rules.debugger.nlp_sequence_ratio import NLPSequenceRatio
from trainyard.insight.rules.debugger.not_a_number import NotANumber
from trainyard.insight.rules.debugger.overfit import Overfit
from trainyard.insight.rules.debugger.overtraining import Overtraining
from trainyard.insight.rules.debugger.poor_weight_initialization import PoorWeightInitialization
from trainyard.insight.rules.debugger.replica_divergence import ReplicaDivergence
from trainyard.insight.rules.debugger.saturated_activation import SaturatedActivation
from trainyard.insight.rules.debugger.similar_across_runs import SimilarAcrossRuns
from trainyard.insight.rules.debugger.stalled_training_rule import StalledTrainingRule
from trainyard.insight.rules.debugger.tensor_variance import TensorVariance
from trainyard.insight.rules.debugger.tree_depth import TreeDepth
from trainyard.insight.rules.debugger.unchanged_tensor import UnchangedTensor
from trainyard.insight.rules.debugger.vanishing_gradient import VanishingGradient
from trainyard.insight.rules.debugger.weight_update_ratio import WeightUpdateRatio
from trainyard.insight.rules.parameters import parse_parameters

RULES: Final[Mapping[str, type[DebuggerRule]]] = MappingProxyType(
    {
        rule.name: rule
        for rule in (
            AllZero,
            AttentionEntropyCollapse,
            CheckInputImages,
            ClassImbalance,
            Confusion,
            CreateXgboostReport,
            DeadEmbedding,
            DeadRelu,
            ExplodingTensor,
            FeatureImportanceOverweight,
            GradientNoise,
            LearningRateTooHigh,
            LearningRateTooLow,
            LossNotDecreasing,
            LossSpike,
            NLPSequenceRatio,
            NotANumber,
            Overfit,
            Overtraining,
            PoorWeightInitialization,
            ReplicaDivergence,
            SaturatedActivation,
            SimilarAcrossRuns,
            StalledTrainingRule,
            TensorVariance,
            TreeDepth,
            UnchangedTensor,
            VanishingGradient,
            WeightUpdateRatio,
        )
    }
)


def make_rule(word: str, parameters: Mapping[str, str]) -> DebuggerRule:
    """Make a rule for one run. InvalidRequest names an unknown rule or a parameter that is unknown or invalid."""
    rule = _rule_named(word)
    return cast(Callable[..., DebuggerRule], rule)(**parse_parameters(rule.name, rule.parameters, parameters))


def rule_values(word: str, parameters: Mapping[str, str]) -> dict[str, object]:
    """Return the value of each parameter of a rule: the given ones, and the defaults of the others."""
    rule = _rule_named(word)
    return parse_parameters(rule.name, rule.parameters, parameters)


def _rule_named(word: str) -> type[DebuggerRule]:
    rule = RULES.get(word)
    if rule is None:
        near = get_close_matches(word, RULES, n=1)
        meant = f"; did you mean {near[0]}?" if near else "."
        raise InvalidRequest(f'There is no built-in rule "{word}"{meant} There are: {", ".join(sorted(RULES))}.')
    return rule
