"""Records a model package: the model and the images that it consists of, its group, and its approval."""

from dataclasses import dataclass
from datetime import datetime

from trainyard.server.control.lineage.graph import ActionState, GraphNode, LineageGraph
from trainyard.server.lineage.entities import SourceId
from trainyard.server.records.contract import Records, Resource
from trainyard.server.registry import Approval, ModelContainer, ModelPackage, group_arn, package_of


@dataclass(frozen=True, slots=True)
class PackageLineage:
    """Records model packages, as AWS describes it."""

    records: Records

    def record(self, resource: Resource, *, now: datetime) -> None:
        """Store the artifact of a package, its group, and what it is made of. Safe to repeat."""
        package = package_of(resource).package
        graph = LineageGraph(self.records, resource.key.account, resource.region, now)
        node = graph.add_artifact("Model", package.arn, name=_name(package))
        for container in package.containers:
            for part in _parts(graph, container):
                graph.associate(part, node, "ContributedTo")
        if not package.group:
            return
        uri = group_arn(resource.region, resource.key.account, package.group)
        group = graph.add_context(f"{package.group}-aws-model-group", "ModelGroup", uri)
        graph.associate(node, group, "AssociatedWith")
        if package.approval in (Approval.APPROVED, Approval.REJECTED):
            graph.associate(node, graph.put_action(_approval(package)), "ContributedTo")


def _parts(graph: LineageGraph, container: ModelContainer) -> list[GraphNode]:
    """Return the image and the model of a container. A model that a job wrote has an artifact already."""
    found = [graph.add_artifact("Image", container.image)] if container.image else []
    if container.model_uri:
        ids = (SourceId("S3ETag", container.model_etag),) if container.model_etag else ()
        known = None if ids else graph.newest_artifact(container.model_uri)
        found.append(known or graph.add_artifact("Model", container.model_uri, *ids))
    return found


def _approval(package: ModelPackage) -> ActionState:
    said = {"ApprovalDescription": package.approval_description} if package.approval_description else {}
    return ActionState(
        f"{_name(package)}-aws-approval",
        "Approval",
        package.arn,
        "Completed",
        {"ModelApprovalStatus": str(package.approval), **said},
    )


def _name(package: ModelPackage) -> str:
    return package.title.replace("/", "-")
