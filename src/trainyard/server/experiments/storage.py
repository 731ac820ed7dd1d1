"""Experiments, trials and trial components as the records store them, with the values by which lists find them."""

import math
from collections.abc import Iterator, Mapping

from trainyard.foundation.arns import arn
from trainyard.foundation.experiments import Experiment, ExperimentTrial, MetricStatistics, TrialComponent
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.server.records.contract import Change, Draft, IndexedValue, Resource, ResourceId, ResourceKey

# The kinds of records are also the types in the ARNs.
EXPERIMENT, TRIAL, COMPONENT = "experiment", "experiment-trial", "experiment-trial-component"

PARENT_TRIAL, PARENT_EXPERIMENT = "Parents.TrialName", "Parents.ExperimentName"
SOURCE_ARN = "Source.SourceArn"
TRIAL_EXPERIMENT = "ExperimentName"

# Members of a stored component that map the names of metrics to their statistics; the latter take precedence.
METRIC_MEMBERS = ("source_metrics", "metrics")

# The rest of a longer text is not indexed; lists compare the whole text themselves.
INDEXED_LENGTH = 200
# Of a metric, one of each is enough to filter by any of its statistics.
INDEXED_STATISTICS = ("Last", "Min", "Max")


def entity_key(account: str, kind: str, name: str) -> ResourceKey:
    """Return the key of an experiment, trial or component. As on AWS, names that differ only in case are the same."""
    return ResourceKey(account, kind, name.lower())


def entity_arn(region: str, account: str, kind: str, name: str) -> str:
    return arn("sagemaker", region, account, f"{kind}/{name.lower()}")


def experiment_of(resource: Resource) -> Experiment:
    return from_plain(Experiment, resource.body)


def trial_of(resource: Resource) -> ExperimentTrial:
    return from_plain(ExperimentTrial, resource.body)


def component_of(resource: Resource) -> TrialComponent:
    return from_plain(TrialComponent, resource.body)


def component_outline_of(resource: Resource) -> TrialComponent:
    """Return the component without its metrics, which take most of the time to read."""
    outline = {name: value for name, value in resource.body.items() if name not in METRIC_MEMBERS}
    return from_plain(TrialComponent, outline)


def experiment_draft(experiment: Experiment, *, account: str, region: str, tags: Mapping[str, str]) -> Draft:
    key = entity_key(account, EXPERIMENT, experiment.name)
    return Draft(key, region, to_plain(experiment), tags=tags, arn=experiment.arn)


def trial_draft(
    trial: ExperimentTrial, *, parent: ResourceId, account: str, region: str, tags: Mapping[str, str]
) -> Draft:
    return Draft(
        entity_key(account, TRIAL, trial.name),
        region,
        to_plain(trial),
        parent=parent,
        tags=tags,
        arn=trial.arn,
        values={TRIAL_EXPERIMENT: (indexed_text(trial.experiment.lower()),)},
    )


def component_draft(component: TrialComponent, *, account: str, region: str, tags: Mapping[str, str]) -> Draft:
    return Draft(
        entity_key(account, COMPONENT, component.name),
        region,
        to_plain(component),
        status=component.status or "",
        tags=tags,
        arn=component.arn,
        values=component_values(component),
    )


def component_change(before: TrialComponent, after: TrialComponent, *, is_quiet: bool = False) -> Change:
    """Return the change that stores a component as it is now. A quiet one does not count as a modification."""
    known, now = component_values(before), component_values(after)
    changed = {name: value for name, value in now.items() if known.get(name) != value}
    removed: dict[str, IndexedValue] = dict.fromkeys(known.keys() - now.keys(), ())
    return Change(status=after.status or "", body=to_plain(after), values={**removed, **changed}, is_quiet=is_quiet)


def component_values(component: TrialComponent) -> Mapping[str, IndexedValue]:
    """Return what lists filter and sort components by."""
    values: dict[str, IndexedValue] = {
        parameter_value_name(name): indexed_parameter(value) for name, value in component.parameters.items()
    }
    for name, statistics in component.all_metrics.items():
        values.update(_metric_values(name, statistics))
    if component.source_arn:
        values[SOURCE_ARN] = (indexed_text(component.source_arn.lower()),)
    if component.parents:
        values[PARENT_TRIAL] = tuple(indexed_text(parent.trial.lower()) for parent in component.parents)
        values[PARENT_EXPERIMENT] = tuple(indexed_text(parent.experiment.lower()) for parent in component.parents)
    return values


def parameter_value_name(name: str) -> str:
    return indexed_text(f"Parameters.{name}", length=400)


def metric_value_name(name: str, statistic: str) -> str:
    """Return the name of the value that a statistic of a metric has; `statistic` is one of INDEXED_STATISTICS."""
    return indexed_text(f"Metrics.{name}.{statistic}", length=400)


def indexed_parameter(value: float | str) -> IndexedValue:
    """Return a parameter as an indexed value. A text that reads as a number is one, as in a search."""
    number = finite_number(value)
    return (indexed_text(str(value)),) if number is None else number


def finite_number(value: float | str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def indexed_text(text: str, *, length: int = INDEXED_LENGTH) -> str:
    """Return what an index can store of a text."""
    return text[:length].replace("\0", "�").encode(errors="replace").decode()


def _metric_values(name: str, statistics: MetricStatistics) -> Iterator[tuple[str, IndexedValue]]:
    numbers = (statistics.last, statistics.minimum, statistics.maximum)
    for statistic, number in zip(INDEXED_STATISTICS, numbers, strict=True):
        # A text, so that the metric is found even if no number can be compared.
        is_number = number is not None and math.isfinite(number)
        yield metric_value_name(name, statistic), number if is_number and number is not None else ("",)
