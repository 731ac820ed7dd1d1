"""How the processes of a training job are launched, parsed from the hyperparameters that SDKs send for it."""

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.launch_kinds import LaunchKind
from trainyard.foundation.jobs.training.plan import InstanceGroupPlan, LaunchPlan
from trainyard.server.services.sagemaker.training.program import TrainingProgram

MAX_PROCESSES_PER_INSTANCE = 256

_GROUPS = "sagemaker_distribution_instance_groups"
_PROCESSES = "sagemaker_mpi_num_of_processes_per_host"
_MPI_OPTIONS = "sagemaker_mpi_custom_mpi_options"
_DATA_PARALLEL_OPTIONS = "sagemaker_distributed_dataparallel_custom_mpi_options"
_MODEL_PARALLEL = "mp_parameters"
# How many ranks a model is split over. The first two are the same.
_DEGREES = ("pipeline_parallel_degree", "partitions", "tensor_parallel_degree")

# Some estimators switch on several; SageMaker's containers take the first.
_SWITCHES: Mapping[str, LaunchKind] = {
    "sagemaker_pytorch_ddp_enabled": LaunchKind.DATA_PARALLEL,
    "sagemaker_torch_distributed_enabled": LaunchKind.TORCHRUN,
    "sagemaker_distributed_dataparallel_enabled": LaunchKind.DATA_PARALLEL,
    "sagemaker_mpi_enabled": LaunchKind.MPI,
    "sagemaker_multi_worker_mirrored_strategy_enabled": LaunchKind.TENSORFLOW_WORKERS,
    "sagemaker_parameter_server_enabled": LaunchKind.PARAMETER_SERVER,
}
# Options of mpirun, and how many words follow each.
_MPIRUN: Mapping[str, int] = {
    "mca": 2,
    "gmca": 2,
    "bind-to": 1,
    "map-by": 1,
    "rank-by": 1,
    "timeout": 1,
    "output-filename": 1,
    "cpus-per-proc": 1,
    "cpu-set": 1,
    "v": 0,
    "q": 0,
    "verbose": 0,
    "quiet": 0,
    "allow-run-as-root": 0,
    "display-allocation": 0,
    "display-map": 0,
    "merge-stderr-to-stdout": 0,
    "nooversubscribe": 0,
    "oversubscribe": 0,
    "report-bindings": 0,
    "tag-output": 0,
    "timestamp-output": 0,
    "use-hwthread-cpus": 0,
}
_VARIABLE = re.compile(r"[A-Za-z_]\w*")


def launch_of(
    hyperparameters: Mapping[str, str], groups: Sequence[InstanceGroupPlan], *, program: TrainingProgram, image: str
) -> LaunchPlan:
    """Return the launcher of a job; InvalidRequest if its options are invalid. A command line needs no launcher."""
    kind = next((kind for name, kind in _SWITCHES.items() if _value(hyperparameters, name, False)), LaunchKind.SINGLE)
    if kind is LaunchKind.SINGLE or program.command:
        return LaunchPlan()
    if kind is LaunchKind.PARAMETER_SERVER and "tensorflow" in image:
        kind = LaunchKind.TENSORFLOW_SERVER
    member = _DATA_PARALLEL_OPTIONS if kind is LaunchKind.DATA_PARALLEL else _MPI_OPTIONS
    has_options = kind in (LaunchKind.MPI, LaunchKind.DATA_PARALLEL)
    options = _parse_mpi_options(_value(hyperparameters, member, ""), member) if has_options else _MpiOptions()
    plan = LaunchPlan(
        kind,
        _processes(hyperparameters, kind),
        _participating_groups(hyperparameters, groups),
        tuple(options.mpirun),
        options.variables,
    )
    _require_divisible_ranks(hyperparameters, groups, plan)
    return plan


@dataclass(slots=True)
class _MpiOptions:
    """The custom MPI options of a job: options for mpirun, and the environment variables that they set."""

    mpirun: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)


def _processes(hyperparameters: Mapping[str, str], kind: LaunchKind) -> int | None:
    if kind in (LaunchKind.PARAMETER_SERVER, LaunchKind.TENSORFLOW_SERVER, LaunchKind.TENSORFLOW_WORKERS):
        return 1
    if kind is not LaunchKind.MPI or _PROCESSES not in hyperparameters:
        return None
    given = _value(hyperparameters, _PROCESSES, None)
    count = int(given) if isinstance(given, str) and given.isdecimal() else given
    if type(count) is not int or not 1 <= count <= MAX_PROCESSES_PER_INSTANCE:
        raise InvalidRequest(
            f"{_PROCESSES} is {given!r}; it must be a whole number from 1 to {MAX_PROCESSES_PER_INSTANCE}."
        )
    return count


def _participating_groups(hyperparameters: Mapping[str, str], groups: Sequence[InstanceGroupPlan]) -> tuple[str, ...]:
    """Return the instance groups that train together; none means all."""
    names = _value(hyperparameters, _GROUPS, [])
    if not isinstance(names, list):
        raise InvalidRequest(f"{_GROUPS} is {names!r}; it must be a list of names.")
    known = {group.name: group.count for group in groups}
    for name in names:
        if name not in known:
            raise InvalidRequest(f'{_GROUPS} names "{name}"; the job has {", ".join(known)}.')
    if names and not sum(known[name] for name in set(names)):
        raise InvalidRequest(f"{_GROUPS} names only groups without instances.")
    return tuple(names)


def _require_divisible_ranks(
    hyperparameters: Mapping[str, str], groups: Sequence[InstanceGroupPlan], plan: LaunchPlan
) -> None:
    """Raise InvalidRequest if the ranks of a job are not a multiple of those that one model is split over."""
    parameters = _value(hyperparameters, _MODEL_PARALLEL, {})
    if not isinstance(parameters, dict):
        raise InvalidRequest(f"{_MODEL_PARALLEL} is {parameters!r}; it must be an object of parameters.")
    degrees = {name: parameters[name] for name in _DEGREES if name in parameters}
    for name, degree in degrees.items():
        if type(degree) is not int or degree < 1:
            raise InvalidRequest(f"{name} of {_MODEL_PARALLEL} is {degree!r}; it must be a whole number, 1 or more.")
    # Then there is one process for each GPU that the instances turn out to have.
    if plan.processes is None:
        return
    size = plan.processes * sum(each.count for each in groups if not plan.groups or each.name in plan.groups)
    degrees.pop("partitions" if "pipeline_parallel_degree" in degrees else "", None)
    parts = math.prod(degrees.values())
    if size % parts:
        given = " and ".join(f"{name} {degree}" for name, degree in degrees.items())
        raise InvalidRequest(
            f"{_MODEL_PARALLEL} has {given}, but the job has {size} ranks; their number must be a multiple of {parts}."
        )


def _parse_mpi_options(text: Any, member: str) -> _MpiOptions:
    """Parse the options of mpirun; InvalidRequest names the first unknown one."""
    try:
        words = shlex.split(text)
    except (ValueError, AttributeError) as error:
        raise InvalidRequest(f"{member} is {text!r}, which cannot be split into options: {error}.") from error
    options = _MpiOptions()
    while words:
        word, _, given = words.pop(0).partition("=")
        name = word.lstrip("-")
        if name in ("NCCL_DEBUG", "x"):
            _set_variable(options, name, given or _next_word(words, word, member))
        elif word.startswith("-") and name in _MPIRUN and not given:
            options.mpirun += [word, *(_next_word(words, word, member) for _ in range(_MPIRUN[name]))]
        else:
            known = ", ".join(sorted(_MPIRUN))
            raise InvalidRequest(
                f"{member} has the unknown option {word}; use --NCCL_DEBUG, -x NAME=VALUE, or of mpirun: {known}."
            )
    return options


def _set_variable(options: _MpiOptions, name: str, value: str) -> None:
    """Set a variable. `-x NAME` without a value needs nothing: all processes have the variable anyway."""
    if name == "x":
        name, has_value, value = value.partition("=")
        if not has_value:
            return
    if not _VARIABLE.fullmatch(name):
        raise InvalidRequest(f'"{name}" is not a valid name of an environment variable.')
    options.variables[name] = value


def _next_word(words: list[str], option: str, member: str) -> str:
    if not words:
        raise InvalidRequest(f"{member} ends with {option}, which needs a value.")
    return words.pop(0)


def _value(hyperparameters: Mapping[str, str], name: str, default: Any) -> Any:
    """Return the value of a hyperparameter. The SDK sends JSON; others send plain text or Python literals."""
    if name not in hyperparameters:
        return default
    text = hyperparameters[name]
    try:
        return json.loads({"True": "true", "False": "false"}.get(text, text))
    except ValueError:
        return text
