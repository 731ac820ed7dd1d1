"""Which rule ends the trials of a tuning job early."""

from trainyard.foundation.tuning import EarlyStopping, StrategyKind, TuningPlan
from trainyard.insight.tuning.contract import Pruner
from trainyard.insight.tuning.hyperband import Hyperband, epochs_of
from trainyard.insight.tuning.median import MedianRule


def pruner_of(plan: TuningPlan, definition: str) -> Pruner | None:
    """What ends trials of this definition early; None where they all run to their end."""
    searched = plan.definition(definition)
    objective = searched.objective
    if plan.strategy is StrategyKind.HYPERBAND and plan.resources is not None:
        return Hyperband(objective, plan.resources, epochs=epochs_of(searched.static))
    if plan.early_stopping is EarlyStopping.MEDIAN:
        return MedianRule(objective)
    if plan.early_stopping is EarlyStopping.CURVE:
        # Only this rule computes with numpy and scipy, which take a process memory and time to load.
        from trainyard.insight.tuning.curves import CurveRule

        return CurveRule(objective)
    return None
