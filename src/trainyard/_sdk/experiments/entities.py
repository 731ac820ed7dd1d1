"""Creates experiments, trials and trial components, or finds those that exist."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainyard.foundation.errors import InvalidRequest, TrainyardError

if TYPE_CHECKING:
    from trainyard._sdk.connection import Api

# The names and the tag that the sagemaker SDK uses, so that either finds the runs of the other.
RUN_TAG = {"Key": "sagemaker:trial-component-source", "Value": "run"}
MAX_NAME_LENGTH = 120

_GROUP_PREFIX = "Default-Run-Group-"
_EXISTS = "already exists"


def run_group_of(experiment: str) -> str:
    """Return the name of the trial with the runs of an experiment."""
    return f"{_GROUP_PREFIX}{experiment}"


def component_of_run(experiment: str, run: str) -> str:
    """Return the name of the component of a run; InvalidRequest if it would be too long."""
    name = f"{experiment}-{run}".lower()
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidRequest(
            f'The names of the experiment and the run have {len(name) - 1} characters together ("{name}"); '
            f"at most {MAX_NAME_LENGTH - 1} are allowed."
        )
    return name


def ensure_experiment(api: "Api", name: str, **members: Any) -> bool:
    """Create an experiment unless it exists; return whether this call created it."""
    return _create(api, "CreateExperiment", ExperimentName=name, **members)


def ensure_trial(api: "Api", name: str, experiment: str, **members: Any) -> bool:
    """Create a trial unless it exists; return whether this call created it."""
    return _create(api, "CreateTrial", TrialName=name, ExperimentName=experiment, **members)


def ensure_component(api: "Api", name: str, **members: Any) -> bool:
    """Create a trial component unless it exists; return whether this call created it."""
    return _create(api, "CreateTrialComponent", TrialComponentName=name, **members)


def tag_list(tags: Mapping[str, str] | list[dict[str, str]] | None) -> list[dict[str, str]]:
    """Return tags in the form of the API."""
    if isinstance(tags, Mapping):
        return [{"Key": key, "Value": value} for key, value in tags.items()]
    return list(tags or ())


def parameter_shape(value: object) -> dict[str, str | float]:
    """Return a parameter in the form of the API: as a number if it is one, else as text."""
    if isinstance(value, str):
        return {"StringValue": value}
    try:
        # Numbers of numpy and torch are no Python numbers.
        return {"NumberValue": float(value)} if not isinstance(value, bool) else {"StringValue": str(value)}  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return {"StringValue": str(value)}


def parameter_value(shape: Mapping[str, Any]) -> float | str:
    """Return a parameter from the form of the API."""
    value: float | str = shape["StringValue"] if "StringValue" in shape else shape["NumberValue"]
    return value


def _create(api: "Api", operation: str, **request: Any) -> bool:
    try:
        api.call("sagemaker", operation, **{name: value for name, value in request.items() if value})
    except TrainyardError as error:
        if _EXISTS in error.message:
            return False
        raise
    return True
