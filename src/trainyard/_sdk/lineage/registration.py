"""Registers the models of training jobs as model packages."""

from collections.abc import Mapping
from typing import Any

from trainyard._sdk.connection import Api
from trainyard.foundation.errors import InvalidRequest
from trainyard.wire.client import CallFailed

# In the message of AWS and of the yard, when somebody else has created the group.
_EXISTS = "already exists"


def register_model(
    api: Api, *, image: str, model_uri: str, group: str = "", name: str = "", options: Mapping[str, Any] | None = None
) -> str:
    """Register a model as the next version of a group, or under a name of its own; return the ARN of the package.

    A group that does not exist is created. `options` are members of the request and of its InferenceSpecification.
    """
    if bool(group) == bool(name):
        raise InvalidRequest("Give either model_package_group_name or model_package_name.")
    given = dict(options or {})
    specification = {member: given.pop(member) for member in list(given) if member.startswith("Supported")}
    request = given | {
        "InferenceSpecification": {"Containers": [{"Image": image, "ModelDataUrl": model_uri}], **specification}
    }
    if name:
        return _create(api, {**request, "ModelPackageName": name})
    ensure_group(api, group)
    return _create(api, {**request, "ModelPackageGroupName": group})


def ensure_group(api: Api, group: str) -> None:
    """Create a group of model packages unless there is one."""
    try:
        api.call("sagemaker", "CreateModelPackageGroup", ModelPackageGroupName=group)
    except CallFailed as error:
        if _EXISTS not in error.message:
            raise


def _create(api: Api, request: Mapping[str, Any]) -> str:
    arn: str = api.call("sagemaker", "CreateModelPackage", **request)["ModelPackageArn"]
    return arn
