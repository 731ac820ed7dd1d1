"""Registered models: versions of a model package group, with their approval."""

from typing import Any

from trainyard._sdk.lineage.tree import LineageTree, artifact_of, read_tree
from trainyard.session import Session

__all__ = ["ModelPackage"]


class ModelPackage:
    """A registered model. `estimator.register` returns one.

    Args:
        model_package_arn: ARN of the model package, or its group and version, such as `churn/3`.
        sagemaker_session: The session to use. Default: a new one.
    """

    def __init__(self, model_package_arn: str, sagemaker_session: Session | None = None) -> None:
        self._named = model_package_arn
        self._session = sagemaker_session or Session()

    def __repr__(self) -> str:
        return f"<model package {self._named.rpartition(':model-package/')[2]}>"

    @property
    def model_package_arn(self) -> str:
        """The ARN of the model package."""
        return self._named if self._named.startswith("arn:") else str(self.describe()["ModelPackageArn"])

    @property
    def model_data(self) -> str:
        """The S3 location of the model; empty if the package has none."""
        containers = self.describe().get("InferenceSpecification", {}).get("Containers", ())
        return next((each["ModelDataUrl"] for each in containers if each.get("ModelDataUrl")), "")

    def describe(self) -> dict[str, Any]:
        """Return the DescribeModelPackage response."""
        return self._session.api.call("sagemaker", "DescribeModelPackage", ModelPackageName=self._named)

    def update_approval_status(self, approval_status: str, approval_description: str | None = None) -> None:
        """Approve or reject the version.

        Args:
            approval_status: `Approved`, `Rejected` or `PendingManualApproval`.
            approval_description: Why.
        """
        request = {"ModelPackageArn": self.model_package_arn, "ModelApprovalStatus": approval_status}
        said = {} if approval_description is None else {"ApprovalDescription": approval_description}
        self._session.api.call("sagemaker", "UpdateModelPackage", **request, **said)

    def lineage(self) -> LineageTree:
        """Return what the model came from: its job, and the data, code and packages of that."""
        return read_tree(self._session.api, artifact_of(self._session.api, self.model_package_arn))

    def delete(self) -> None:
        """Delete the model package. The model itself and the lineage stay."""
        self._session.api.call("sagemaker", "DeleteModelPackage", ModelPackageName=self._named)
