"""The choice of the pruner for a tuning job."""

from trainyard.foundation.jobs.tuning import EarlyStopping, StrategyKind, TuningPlan
from trainyard.insight.tuning.contract import Pruner
from trainyard.insight.tuning.hyperband import Hyperband, epochs_of
from trainyard.insight.tuning.median import MedianRule


def pruner_of(plan: TuningPlan, definition: str) -> Pruner | None:
    """Return the pruner for trials of this definition; None if they all run to their end."""
    tuned = plan.definition(definition)
    objective = tuned.objective
    if plan.strategy is StrategyKind.HYPERBAND and plan.resources is not None:
        return Hyperband(objective, plan.resources, epochs=epochs_of(tuned.static))
    if plan.early_stopping is EarlyStopping.MEDIAN:
        return MedianRule(objective)
    if plan.early_stopping is EarlyStopping.CURVE:
        # Only this rule needs numpy and scipy, which cost a process memory and time to load.
        from trainyard.insight.tuning.curves import CurveRule

        return CurveRule(objective)
    return None
