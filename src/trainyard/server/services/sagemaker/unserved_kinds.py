"""Resources that SageMaker has and a yard does not have yet: lists of them are empty, and none is found by its name.

Clients list and describe them on their way to other things. As none can be created, these are the true answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from trainyard.foundation.arns import arn
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.contract import Call, Operations, PlainOperation, Shape
from trainyard.wire.fault import Fault

_NOT_FOUND, _INVALID = "ResourceNotFound", "ValidationException"


@dataclass(frozen=True, slots=True)
class _Lookup:
    """How AWS says that a name belongs to nothing. `words` has the place of the `{name}` or of the `{arn}`."""

    member: str
    code: str
    words: str
    arn_type: str = ""

    def fault(self, call: Call, name: str) -> Fault:
        full = (
            name if name.startswith("arn:") else arn("sagemaker", call.region, call.account, f"{self.arn_type}/{name}")
        )
        return Fault(self.code, self.words.format(name=name, arn=full))


_PIPELINE = _Lookup("PipelineName", _NOT_FOUND, "Pipeline '{arn}' does not exist.", "pipeline")

_LOOKUPS: Mapping[str, _Lookup] = {
    "DescribeTransformJob": _Lookup(
        "TransformJobName", _INVALID, "Could not find requested job with name: {name}", "transform-job"
    ),
    "DescribeAutoMLJob": _Lookup("AutoMLJobName", _NOT_FOUND, "Could not find requested job with name: {name}"),
    "DescribeAutoMLJobV2": _Lookup("AutoMLJobName", _NOT_FOUND, "Could not find requested job with name: {name}"),
    "DescribeModel": _Lookup("ModelName", _INVALID, 'Could not find model "{arn}".', "model"),
    "DescribeEndpoint": _Lookup("EndpointName", _INVALID, 'Could not find endpoint "{arn}".', "endpoint"),
    "DescribeEndpointConfig": _Lookup(
        "EndpointConfigName", _INVALID, 'Could not find endpoint configuration "{arn}".', "endpoint-config"
    ),
    "DescribePipeline": _PIPELINE,
}


@dataclass(frozen=True, slots=True)
class _EmptyList:
    """A list that is always empty: the member of the answer, and what it would list.

    With the name of one of its `parents`, AWS lists what belongs to it, and finds that it does not exist.
    """

    member: str
    things: str
    parents: tuple[_Lookup, ...] = ()


_EMPTY_LISTS: Mapping[str, _EmptyList] = {
    "ListTransformJobs": _EmptyList("TransformJobSummaries", "transform jobs"),
    "ListAutoMLJobs": _EmptyList("AutoMLJobSummaries", "AutoML jobs"),
    "ListModels": _EmptyList("Models", "models"),
    "ListEndpoints": _EmptyList("Endpoints", "endpoints"),
    "ListEndpointConfigs": _EmptyList("EndpointConfigs", "endpoint configurations"),
    "ListPipelines": _EmptyList("PipelineSummaries", "pipelines"),
    "ListPipelineExecutions": _EmptyList("PipelineExecutionSummaries", "pipelines", (_PIPELINE,)),
    "ListMlflowTrackingServers": _EmptyList("TrackingServerSummaries", "MLflow tracking servers"),
    "ListMlflowApps": _EmptyList("Summaries", "MLflow apps"),
    "ListTrainingPlans": _EmptyList("TrainingPlanSummaries", "training plans"),
}


def _list_nothing(empty: _EmptyList) -> PlainOperation:
    def list_nothing(call: Call, request: Shape) -> Shape:
        for parent in empty.parents:
            if parent.member in request:
                raise parent.fault(call, request[parent.member])
        if request.get("NextToken"):
            raise InvalidRequest("The NextToken is invalid.")
        return {empty.member: []}

    list_nothing.__doc__ = f"Return none: a yard has no {empty.things} yet."
    return list_nothing


def _find_nothing(lookup: _Lookup) -> PlainOperation:
    def find_nothing(call: Call, request: Shape) -> Shape:
        raise lookup.fault(call, request[lookup.member])

    find_nothing.__doc__ = "Find nothing: a yard has none yet."
    return find_nothing


OPERATIONS: Operations = {
    **{name: _list_nothing(empty) for name, empty in _EMPTY_LISTS.items()},
    **{name: _find_nothing(lookup) for name, lookup in _LOOKUPS.items()},
}
