"""Which statistic of which tensors a rule compares with its thresholds, so that charts can draw them in."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class DrawnThreshold:
    """A parameter of a rule that is a threshold of one statistic. `kinds` of tensors are checked; empty means all.

    The parameter times `factor` is what the statistic is compared with: some are percentages.
    """

    parameter: str
    statistic: str
    kinds: tuple[str, ...] = ()
    factor: float = 1.0


# Rules that compare something else than a statistic of one tensor are not here. Their findings have the evidence.
_THRESHOLDS: Final[Mapping[str, Sequence[DrawnThreshold]]] = {
    "VanishingGradient": (DrawnThreshold("threshold", "mean_abs", ("gradient",)),),
    "WeightUpdateRatio": (
        DrawnThreshold("large_threshold", "update_ratio", ("weight", "bias")),
        DrawnThreshold("small_threshold", "update_ratio", ("weight", "bias")),
    ),
    "TensorVariance": (DrawnThreshold("max_threshold", "variance"), DrawnThreshold("min_threshold", "variance")),
    "AllZero": (DrawnThreshold("threshold", "zero_share", factor=0.01),),
    "DeadRelu": (DrawnThreshold("threshold_layer", "idle_units", factor=0.01),),
    "SaturatedActivation": (DrawnThreshold("threshold_layer", "idle_units", factor=0.01),),
    "AttentionEntropyCollapse": (DrawnThreshold("threshold", "row_entropy"),),
}


def list_thresholds(rules: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the thresholds of the rules of a job, from their description in DescribeJob."""
    for rule in rules:
        values = {each["Name"]: each["Value"] for each in rule.get("Parameters", ())}
        for drawn in _THRESHOLDS.get(rule["Rule"], ()):
            value = _number(values.get(drawn.parameter, ""))
            if value is not None:
                yield {
                    "rule": rule["Name"],
                    "parameter": drawn.parameter,
                    "statistic": drawn.statistic,
                    "kinds": list(drawn.kinds),
                    "value": value * drawn.factor,
                }


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
