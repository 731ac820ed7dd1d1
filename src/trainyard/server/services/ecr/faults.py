"""How ECR words what is not there."""

from collections.abc import Mapping

from trainyard.server.records.contract import Resource
from trainyard.wire.fault import Fault


def repository_not_found(name: str, account: str) -> Fault:
    message = f"The repository with name '{name}' does not exist in the registry with id '{account}'"
    return Fault("RepositoryNotFoundException", message)


def image_not_found(wanted: Mapping[str, str], repository: Resource) -> Fault:
    digest, tag = (wanted.get(member, "null") for member in ("imageDigest", "imageTag"))
    message = (
        f"The image with imageId {{imageDigest:'{digest}', imageTag:'{tag}'}} does not exist within the repository "
        f"with name '{repository.key.name}' in the registry with id '{repository.key.account}'"
    )
    return Fault("ImageNotFoundException", message)
