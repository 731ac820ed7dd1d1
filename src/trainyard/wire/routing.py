"""Routes a request to the operation of a service, and to the codec of its protocol."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trainyard.wire.addressing import Hosts
from trainyard.wire.fault import Fault
from trainyard.wire.http import HttpRequest
from trainyard.wire.models import Models
from trainyard.wire.protocols.aws_json import AwsJson
from trainyard.wire.protocols.contract import Codec
from trainyard.wire.protocols.query import AwsQuery, Ec2Query, action_of
from trainyard.wire.protocols.rest_json import RestJson
from trainyard.wire.protocols.rest_xml import RestXml
from trainyard.wire.protocols.rpc_v2_cbor import RpcV2Cbor
from trainyard.wire.rest_table import RestTable

if TYPE_CHECKING:
    from botocore.model import OperationModel

# These identify a service before its model is loaded; a test compares them with the models.
SCOPES: Final = {
    "s3": "s3",
    "s3express": "s3",
    "s3-object-lambda": "s3",
    "sts": "sts",
    "iam": "iam",
    "sagemaker": "sagemaker",
    "logs": "logs",
    "monitoring": "cloudwatch",
    "tagging": "resourcegroupstaggingapi",
    "ecr": "ecr",
    "kms": "kms",
    "ec2": "ec2",
    "trainyard": "trainyard",
}
TARGETS: Final = {
    "SageMaker": "sagemaker",
    "Logs_20140328": "logs",
    "GraniteServiceVersion20100801": "cloudwatch",
    "ResourceGroupsTaggingAPI_20170126": "resourcegroupstaggingapi",
    "AmazonEC2ContainerRegistry_V20150921": "ecr",
    "TrentService": "kms",
}
VERSIONS: Final = {"2011-06-15": "sts", "2010-05-08": "iam", "2010-08-01": "cloudwatch", "2016-11-15": "ec2"}
QUERY: Final = frozenset(VERSIONS.values())
# Services with the same signing name, distinguished by their paths.
REST: Final = {"sagemaker": ("sagemaker-runtime", "sagemaker-metrics"), "trainyard": ("trainyard",)}

_ODD_SEGMENT = re.compile(r"/\.{0,2}/|/\.{1,2}$")
_CBOR_PATH = re.compile(r"/service/([^/]+)/operation/([^/]+)")


@dataclass(frozen=True, slots=True)
class Route:
    """The operation of a request, and the codec of its protocol. `labels` are the decoded labels of the URI."""

    service: str
    operation: "OperationModel"
    codec: Codec
    labels: Mapping[str, str]


class Router:
    """Finds the operation of a request.

    The signature's scope names the service. A request without one is identified by its X-Amz-Target, CBOR path or form;
    any other goes to S3. Safe to share between threads; the table of a service is compiled on first use.
    """

    def __init__(self, models: Models, served_hosts: Sequence[str]) -> None:
        self._models = models
        self._hosts = Hosts(served_hosts)
        self._json = {"1.0": AwsJson("1.0"), "1.1": AwsJson("1.1")}
        self._cbor, self._query, self._ec2 = RpcV2Cbor(), AwsQuery(), Ec2Query()
        self._rest_json, self._rest_xml = RestJson(), RestXml()
        self._tables: dict[str, RestTable] = {}
        self._routes: dict[tuple[Codec, str, str], Route] = {}

    def needs_body(self, request: HttpRequest) -> bool:
        """Whether the body names the operation, so that it must be read before `match`."""
        if request.method != "POST" or "x-amz-target" in request.headers or "smithy-protocol" in request.headers:
            return False
        service = SCOPES.get(_scope(request))
        return service in QUERY or (service is None and request.path in ("/", "") and _is_form(request))

    def match(self, request: HttpRequest) -> Route:
        """Return the route of a request; Fault for an operation that does not exist on AWS."""
        scope = _scope(request)
        service = SCOPES.get(scope)
        if service == "s3":
            return self._match_s3(request)
        if "x-amz-target" in request.headers:
            return self._match_target(request)
        if request.headers.get("smithy-protocol") == "rpc-v2-cbor":
            return self._match_cbor(request)
        if service in REST:
            return self._match_rest(request, REST[service])
        if service is None or service in QUERY:
            parameters = action_of(request)
            if service is not None or {"Action", "Version"} <= parameters.keys():
                return self._match_action(parameters, service)
        if scope:
            raise _unknown_operation(f'The yard has no operation of "{scope}" at this address.')
        return self._match_s3(request)

    def fault_codec(self, request: HttpRequest) -> Codec:
        """Return the codec for the fault of a request that `match` could not route; never raises."""
        service = SCOPES.get(_scope(request))
        if service == "s3":
            return self._rest_xml
        if "x-amz-target" in request.headers:
            return self._json_codec(request)
        if request.headers.get("smithy-protocol") == "rpc-v2-cbor":
            return self._cbor
        if service in QUERY or (service is None and (_is_form(request) or "Action=" in request.query)):
            return self._ec2 if service == "ec2" else self._query
        return self._rest_json if _scope(request) else self._rest_xml

    def _match_s3(self, request: HttpRequest) -> Route:
        if request.method == "OPTIONS":
            raise Fault("AccessForbidden", "CORSResponse: CORS is not enabled for this bucket.", status=403)
        bucket = self._hosts.bucket(request.host)
        path = request.path if bucket is None else f"/{bucket}{request.path}"
        match = self._table("s3").match(request, path)
        if match is None and request.headers.get("content-type").startswith("multipart/form-data"):
            # An upload from a browser form is the only S3 operation missing from botocore's model.
            raise Fault("NotImplemented", "Trainyard does not serve the s3 operation PostObject.", status=501)
        if match is None:
            message = "The specified method is not allowed against this resource."
            raise Fault("MethodNotAllowed", message, status=405, members={"Method": request.method})
        return Route("s3", match.operation, self._rest_xml, match.labels)

    def _match_target(self, request: HttpRequest) -> Route:
        prefix, _, name = request.headers["x-amz-target"].rpartition(".")
        service = TARGETS.get(prefix)
        if service is None:
            raise _unknown_operation(f'The yard has no service with the target "{prefix}".')
        return self._route_of(self._json_codec(request), service, name=name)

    def _match_cbor(self, request: HttpRequest) -> Route:
        path = _CBOR_PATH.fullmatch(request.path)
        service = TARGETS.get(path.group(1)) if path else None
        if path is None or service != "cloudwatch":
            raise _unknown_operation("The yard does not serve this service over CBOR.")
        return self._route_of(self._cbor, service, name=path.group(2))

    def _match_rest(self, request: HttpRequest, services: Sequence[str]) -> Route:
        # The signed path omits these segments, so one signature would be valid for several paths.
        if _ODD_SEGMENT.search(request.path):
            raise _unknown_operation(
                f"There is no operation at {request.path}: the path has an empty or a dot segment."
            )
        for service in services:
            match = self._table(service).match(request, request.path)
            if match is not None:
                return Route(service, match.operation, self._rest_json, match.labels)
        raise _unknown_operation(f"There is no operation at {request.method} {request.path}.")

    def _match_action(self, parameters: Mapping[str, str], service: str | None) -> Route:
        action, version = parameters.get("Action", ""), parameters.get("Version", "")
        if not action:
            raise Fault("MissingAction", "The request is missing an action or a required parameter.")
        service = service or VERSIONS.get(version)
        if service is None or action not in self._models.service(service).operation_names:
            raise Fault(
                "InvalidAction", f"Could not find operation {action} for version {version or 'NO_VERSION_SPECIFIED'}"
            )
        return self._route_of(self._ec2 if service == "ec2" else self._query, service, name=action)

    def _route_of(self, codec: Codec, service: str, *, name: str) -> Route:
        route = self._routes.get((codec, service, name))
        if route is None:
            model = self._models.service(service)
            if name not in model.operation_names:
                raise _unknown_operation(f'{service} has no operation "{name}".')
            route = self._routes[codec, service, name] = Route(service, model.operation_model(name), codec, {})
        return route

    def _table(self, service: str) -> RestTable:
        table = self._tables.get(service)
        if table is None:
            table = self._tables[service] = RestTable(self._models.service(service))
        return table

    def _json_codec(self, request: HttpRequest) -> AwsJson:
        is_1_0 = request.headers.get("content-type").startswith("application/x-amz-json-1.0")
        return self._json["1.0" if is_1_0 else "1.1"]


def _scope(request: HttpRequest) -> str:
    """Return the service in the signature's scope, not yet verified; "" if there is none."""
    authorization = request.headers.get("authorization")
    credential = _between(authorization, "Credential=", ",") if authorization else ""
    if not credential and "X-Amz-Credential=" in request.query:
        credential = _between(request.query, "X-Amz-Credential=", "&").replace("%2F", "/").replace("%2f", "/")
    parts = credential.strip().split("/")
    return parts[-2] if len(parts) >= 4 else ""


def _between(text: str, start: str, end: str) -> str:
    return text.partition(start)[2].partition(end)[0]


def _is_form(request: HttpRequest) -> bool:
    return request.headers.get("content-type").lower().startswith("application/x-www-form-urlencoded")


def _unknown_operation(message: str) -> Fault:
    return Fault("UnknownOperationException", message)
