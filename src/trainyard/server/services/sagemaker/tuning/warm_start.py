"""WarmStartConfig: from which ended tuning jobs one starts, and why it could not."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.tuning import Definition, StrategyKind, TuningJob, WarmStart, WarmStartKind
from trainyard.server.records.contract import Records, Resource
from trainyard.server.services.sagemaker.tuning.definitions import named
from trainyard.server.services.sagemaker.tuning.trials import definition_in
from trainyard.server.tuning import request_of, tuning_job_of, tuning_key

# Hyperparameters of SDKs, which say how a program is run and come and go with their versions.
_OF_SDKS = "sagemaker_"


def warm_start_of(
    request: Mapping[str, Any], definitions: Sequence[Definition], *, records: Records, account: str
) -> WarmStart | None:
    """InvalidRequest says what of a parent does not fit, and what to do about it."""
    config = request.get("WarmStartConfig")
    if config is None:
        return None
    if request["HyperParameterTuningJobConfig"]["Strategy"] == StrategyKind.GRID:
        raise InvalidRequest("Grid tries every combination, so that a warm start is no use; leave WarmStartConfig out.")
    kind = WarmStartKind(config["WarmStartType"])
    parents = [_parent(records, account, name) for name in _names(config)]
    for parent in parents:
        _require_fit(request, definitions, parent=parent, kind=kind)
    if not any(tuning_job_of(parent).measured for parent in parents):
        raise InvalidRequest(
            "None of the parents has a training job that reported its objective metric, so that there is nothing to "
            "start from; leave WarmStartConfig out, or name others."
        )
    return WarmStart(kind, tuple(parent.id for parent in parents))


def _names(config: Mapping[str, Any]) -> Sequence[str]:
    names = [each.get("HyperParameterTuningJobName", "") for each in config["ParentHyperParameterTuningJobs"]]
    for name in names:
        if not name:
            raise InvalidRequest("Each of the ParentHyperParameterTuningJobs needs a HyperParameterTuningJobName.")
        if [each.lower() for each in names].count(name.lower()) > 1:
            raise InvalidRequest(f'The parent "{name}" is named more than once; name each once.')
    return names


def _parent(records: Records, account: str, name: str) -> Resource:
    try:
        parent = records.load(tuning_key(account, name))
    except NotFound as error:
        raise InvalidRequest(
            f'The parent "{name}" does not exist; `aws sagemaker list-hyper-parameter-tuning-jobs` shows those that do.'
        ) from error
    job = tuning_job_of(parent)
    if not job.is_final:
        raise InvalidRequest(f'The parent "{name}" is {job.status}; wait until it has ended, or stop it.')
    return parent


def _require_fit(
    request: Mapping[str, Any], definitions: Sequence[Definition], *, parent: Resource, kind: WarmStartKind
) -> None:
    job = tuning_job_of(parent)
    pairs = list(_pairs(definitions, job.plan.definitions))
    if not pairs:
        raise InvalidRequest(
            f'None of the training job definitions has the DefinitionName of one of the parent "{job.name}", which has '
            f"{', '.join(each.name for each in job.plan.definitions)}; name them alike."
        )
    for own, theirs in pairs:
        _require_objective(own, theirs, job=job)
        _require_names(own, theirs, job=job)
        if kind is WarmStartKind.IDENTICAL:
            known = definition_in(request_of(parent), theirs.name)
            _require_identical(definition_in(request, own.name), known, job=job)


def _pairs(definitions: Sequence[Definition], known: Sequence[Definition]) -> Iterator[tuple[Definition, Definition]]:
    """Which algorithm of a parent is which: the only one of either, else those of one name."""
    if len(definitions) == len(known) == 1:
        yield definitions[0], known[0]
        return
    by_name = {each.name: each for each in known}
    yield from ((each, by_name[each.name]) for each in definitions if each.name in by_name)


def _require_objective(own: Definition, theirs: Definition, *, job: TuningJob) -> None:
    if own.objective == theirs.objective:
        return
    raise InvalidRequest(
        f'{named(own)} is to {own.objective.direction} "{own.objective.metric}", but that of the parent "{job.name}" '
        f'was to {theirs.objective.direction} "{theirs.objective.metric}"; a warm start needs the same objective.'
    )


def _require_names(own: Definition, theirs: Definition, *, job: TuningJob) -> None:
    """AWS refuses this without a word on which names they are, which cost its users days."""
    here, there = _hyperparameters(own), _hyperparameters(theirs)
    if here == there:
        return
    parts = []
    if here - there:
        parts.append(f"{_listed(here - there)} {_is(here - there)} not in the parent; take {_it(here - there)} out")
    if there - here:
        parts.append(
            f"{_listed(there - here)} of the parent {_is(there - here)} missing here; add {_it(there - here)}, with a "
            "range or as StaticHyperParameters"
        )
    raise InvalidRequest(
        "The set of tunable plus static HyperParameter names is not the same across current and parent tuning jobs. "
        f'With the parent "{job.name}": {"; ".join(parts)}. A hyperparameter may be static in one and tuned in the '
        "other."
    )


def _hyperparameters(definition: Definition) -> frozenset[str]:
    names = {*definition.static, *(each.name for each in definition.ranges)}
    return frozenset(name for name in names if not name.startswith(_OF_SDKS))


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _is(names: frozenset[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _it(names: frozenset[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _require_identical(own: Mapping[str, Any], theirs: Mapping[str, Any], *, job: TuningJob) -> None:
    images = [each["AlgorithmSpecification"].get("TrainingImage", "") for each in (own, theirs)]
    what = ""
    if images[0] != images[1]:
        what = f'the TrainingImage is "{images[0]}", and was "{images[1]}"'
    here, there = _data(own), _data(theirs)
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            what = f'the channel "{name}" is {here.get(name, "missing")}, and was {there.get(name, "missing")}'
            break
    if what:
        raise InvalidRequest(
            f'IdenticalDataAndAlgorithm is for the image and the data of the parent "{job.name}", but {what}. Make '
            "them the same, or choose TransferLearning."
        )


def _data(definition: Mapping[str, Any]) -> Mapping[str, str]:
    """Where the data of each channel lies."""
    return {each["ChannelName"]: _place(each["DataSource"]) for each in definition.get("InputDataConfig", ())}


def _place(source: Mapping[str, Any]) -> str:
    if "S3DataSource" in source:
        uri: str = source["S3DataSource"]["S3Uri"]
        return uri.rstrip("/")
    file_system = source.get("FileSystemDataSource", {})
    return f"{file_system.get('FileSystemId', '')}:{file_system.get('DirectoryPath', '')}"
