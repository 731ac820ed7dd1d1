"""The model registry as the records store it: groups of model packages, and packages with or without a version.

A package of a group is a child of the group. Its name in the records is the group and the version, such as `churn/3`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from trainyard.foundation.arns import arn
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.server.records.contract import Change, Draft, Resource, ResourceId, ResourceKey

GROUP = "model-package-group"
PACKAGE = "model-package"


class Approval(StrEnum):
    """Whether a version may be used, in the words of AWS."""

    PENDING = "PendingManualApproval"
    APPROVED = "Approved"
    REJECTED = "Rejected"


@dataclass(frozen=True, slots=True)
class ModelPackageGroup:
    """A group: the versions of one model. A version number is never used again, not even after a delete."""

    name: str
    arn: str
    description: str = ""
    last_version: int = 0
    created_by: str = ""
    policy: str = ""


@dataclass(frozen=True, slots=True)
class ModelContainer:
    """A container of a package: its image, and the location and ETag of its model; each may be empty."""

    image: str = ""
    model_uri: str = ""
    model_etag: str = ""


@dataclass(frozen=True, slots=True)
class ModelPackage:
    """A model package. `version` is 0 for one without a group. The request has everything else that clients sent."""

    arn: str
    group: str = ""
    version: int = 0
    name: str = ""
    containers: tuple[ModelContainer, ...] = ()
    approval: Approval | None = None
    approval_description: str = ""
    created_by: str = ""
    modified_by: str = ""

    @property
    def title(self) -> str:
        """What people call it: its name, or its group and version."""
        return f"{self.group}/{self.version}" if self.group else self.name


@dataclass(frozen=True, slots=True)
class StoredPackage:
    """A package with the request that created it, as later updates have changed it."""

    package: ModelPackage
    request: Mapping[str, Any] = field(default_factory=dict)


def group_arn(region: str, account: str, name: str) -> str:
    return arn("sagemaker", region, account, f"model-package-group/{name}")


def package_arn(region: str, account: str, title: str) -> str:
    return arn("sagemaker", region, account, f"model-package/{title}")


def group_draft(group: ModelPackageGroup, *, account: str, region: str, tags: Mapping[str, str]) -> Draft:
    key = ResourceKey(account, GROUP, group.name)
    return Draft(key, region, to_plain(group), status="Completed", tags=tags, arn=group.arn)


def group_of(resource: Resource) -> ModelPackageGroup:
    return from_plain(ModelPackageGroup, resource.body)


def group_change(group: ModelPackageGroup) -> Change:
    return Change(body=to_plain(group))


def next_version(group: ModelPackageGroup) -> ModelPackageGroup:
    return replace(group, last_version=group.last_version + 1)


def package_draft(
    stored: StoredPackage, *, account: str, region: str, parent: ResourceId | None, tags: Mapping[str, str]
) -> Draft:
    """Return the record of a package. Its status is the approval, which lists filter by."""
    return Draft(
        ResourceKey(account, PACKAGE, stored.package.title),
        region,
        _body(stored),
        status=stored.package.approval or "",
        parent=parent,
        tags=tags,
        arn=stored.package.arn,
    )


def package_of(resource: Resource) -> StoredPackage:
    return StoredPackage(from_plain(ModelPackage, resource.body["package"]), resource.body["request"])


def package_change(stored: StoredPackage) -> Change:
    return Change(status=stored.package.approval or "", body=_body(stored))


def _body(stored: StoredPackage) -> Mapping[str, Any]:
    return {"package": to_plain(stored.package), "request": stored.request}
