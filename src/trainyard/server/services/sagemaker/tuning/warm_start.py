"""WarmStartConfig: the ended tuning jobs from which a new one starts, and whether they are compatible."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.jobs.tuning import StrategyKind, TuningDefinition, TuningJob, WarmStart, WarmStartKind
from trainyard.server.jobs.tuning import job_of, request_of, tuning_key
from trainyard.server.records.contract import Records, Resource
from trainyard.server.services.sagemaker.tuning.definitions import definition_label
from trainyard.server.services.sagemaker.tuning.trial_requests import definition_in

# Hyperparameters that SDKs add, which say how to run a program and change with SDK versions.
_SDK_PREFIX = "sagemaker_"


def warm_start_of(
    request: Mapping[str, Any], definitions: Sequence[TuningDefinition], *, records: Records, account: str
) -> WarmStart | None:
    """Return the warm start of a request; InvalidRequest says how a parent is incompatible and what to do."""
    config = request.get("WarmStartConfig")
    if config is None:
        return None
    if request["HyperParameterTuningJobConfig"]["Strategy"] == StrategyKind.GRID:
        raise InvalidRequest("Grid tries every combination, so a warm start has no effect; leave WarmStartConfig out.")
    kind = WarmStartKind(config["WarmStartType"])
    parents = [_load_parent(records, account, name) for name in _parent_names(config)]
    for parent in parents:
        _require_compatible(request, definitions, parent=parent, kind=kind)
    if not any(job_of(parent).measured for parent in parents):
        raise InvalidRequest(
            "None of the parents has a training job that reported its objective metric, so there is nothing to start "
            "from; leave WarmStartConfig out, or name other parents."
        )
    return WarmStart(kind, tuple(parent.id for parent in parents))


def _parent_names(config: Mapping[str, Any]) -> Sequence[str]:
    names = [each.get("HyperParameterTuningJobName", "") for each in config["ParentHyperParameterTuningJobs"]]
    for name in names:
        if not name:
            raise InvalidRequest("Each of the ParentHyperParameterTuningJobs needs a HyperParameterTuningJobName.")
        if [each.lower() for each in names].count(name.lower()) > 1:
            raise InvalidRequest(f'The parent "{name}" is named more than once; name it only once.')
    return names


def _load_parent(records: Records, account: str, name: str) -> Resource:
    try:
        parent = records.load(tuning_key(account, name))
    except NotFound as error:
        raise InvalidRequest(
            f'The parent "{name}" does not exist; `aws sagemaker list-hyper-parameter-tuning-jobs` lists those that do.'
        ) from error
    job = job_of(parent)
    if not job.is_final:
        raise InvalidRequest(f'The parent "{name}" is {job.status}; wait until it has ended, or stop it.')
    return parent


def _require_compatible(
    request: Mapping[str, Any], definitions: Sequence[TuningDefinition], *, parent: Resource, kind: WarmStartKind
) -> None:
    job = job_of(parent)
    pairs = list(_pairs(definitions, job.plan.definitions))
    if not pairs:
        raise InvalidRequest(
            f'None of the training job definitions has the same DefinitionName as one of the parent "{job.name}", '
            f"which has {', '.join(each.name for each in job.plan.definitions)}; use the same names."
        )
    for own, theirs in pairs:
        _require_objective(own, theirs, job=job)
        _require_names(own, theirs, job=job)
        if kind is WarmStartKind.IDENTICAL:
            known = definition_in(request_of(parent), theirs.name)
            _require_identical(definition_in(request, own.name), known, job=job)


def _pairs(
    definitions: Sequence[TuningDefinition], known: Sequence[TuningDefinition]
) -> Iterator[tuple[TuningDefinition, TuningDefinition]]:
    """Yield each definition with the one of the parent: the only ones of both, or else those of the same name."""
    if len(definitions) == len(known) == 1:
        yield definitions[0], known[0]
        return
    by_name = {each.name: each for each in known}
    yield from ((each, by_name[each.name]) for each in definitions if each.name in by_name)


def _require_objective(own: TuningDefinition, theirs: TuningDefinition, *, job: TuningJob) -> None:
    if own.objective == theirs.objective:
        return
    raise InvalidRequest(
        f'{definition_label(own)} has the objective to {own.objective.direction} "{own.objective.metric}", but that of '
        f'the parent "{job.name}" was to {theirs.objective.direction} "{theirs.objective.metric}"; a warm start needs '
        "the same objective."
    )


def _require_names(own: TuningDefinition, theirs: TuningDefinition, *, job: TuningJob) -> None:
    """Refuse different hyperparameters and name them. AWS does not name them, which costs its users days."""
    here, there = _hyperparameters(own), _hyperparameters(theirs)
    if here == there:
        return
    parts = []
    if here - there:
        parts.append(f"{_join(here - there)} {_is(here - there)} not in the parent; remove {_it(here - there)}")
    if there - here:
        parts.append(
            f"{_join(there - here)} of the parent {_is(there - here)} missing here; add {_it(there - here)}, with a "
            "range or as StaticHyperParameters"
        )
    raise InvalidRequest(
        "The set of tunable plus static HyperParameter names is not the same across current and parent tuning jobs. "
        f'With the parent "{job.name}": {"; ".join(parts)}. A hyperparameter may be static in one and tuned in the '
        "other."
    )


def _hyperparameters(definition: TuningDefinition) -> frozenset[str]:
    names = {*definition.static, *(each.name for each in definition.ranges)}
    return frozenset(name for name in names if not name.startswith(_SDK_PREFIX))


def _join(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _is(names: frozenset[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _it(names: frozenset[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _require_identical(own: Mapping[str, Any], theirs: Mapping[str, Any], *, job: TuningJob) -> None:
    images = [each["AlgorithmSpecification"].get("TrainingImage", "") for each in (own, theirs)]
    what = ""
    if images[0] != images[1]:
        what = f'the TrainingImage is "{images[0]}", but was "{images[1]}"'
    here, there = _data(own), _data(theirs)
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            what = f'the channel "{name}" is {here.get(name, "missing")}, but was {there.get(name, "missing")}'
            break
    if what:
        raise InvalidRequest(
            f'IdenticalDataAndAlgorithm needs the image and the data of the parent "{job.name}": {what}. Make them '
            "the same, or choose TransferLearning."
        )


def _data(definition: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the location of each channel's data."""
    return {each["ChannelName"]: _source_location(each["DataSource"]) for each in definition.get("InputDataConfig", ())}


def _source_location(source: Mapping[str, Any]) -> str:
    if "S3DataSource" in source:
        uri: str = source["S3DataSource"]["S3Uri"]
        return uri.rstrip("/")
    file_system = source.get("FileSystemDataSource", {})
    return f"{file_system.get('FileSystemId', '')}:{file_system.get('DirectoryPath', '')}"
