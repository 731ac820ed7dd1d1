"""The nodes of the lineage: what an ARN at either end of an association names."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.server.lineage.entities import EntityKind, entity_of
from trainyard.server.lineage.job_records import KIND as JOB_RECORD
from trainyard.server.lineage.job_records import job_record_of
from trainyard.server.records.contract import Records, Resource, ResourceKey

_ARN = re.compile(r"arn:aws:sagemaker:[a-z0-9-]*:(?P<account>[0-9]{12}):(?P<type>[a-z-]+)/(?P<name>[^/]+)")
# What a trial component of a job is called in a list of associations.
JOB_TYPE_PREFIX = "SageMaker"


@dataclass(frozen=True, slots=True)
class LineageNode:
    """A node. `lineage_type` and `type` are words of AWS, such as Artifact and DataSet."""

    arn: str
    lineage_type: str
    type: str
    name: str
    created_at: datetime
    modified_at: datetime
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_experiment(self) -> bool:
        """Whether it belongs to an experiment. Two of those cannot be associated."""
        return self.lineage_type == "TrialComponent"


def node_of_entity(resource: Resource) -> LineageNode:
    entity = entity_of(resource)
    return LineageNode(
        entity.arn,
        _LINEAGE_TYPES[entity.kind],
        entity.type,
        entity.name,
        resource.created_at,
        resource.modified_at,
        entity.properties,
    )


def node_of_job(resource: Resource) -> LineageNode:
    record = job_record_of(resource)
    return LineageNode(
        record.node_arn,
        "TrialComponent",
        f"{JOB_TYPE_PREFIX}TrainingJob",
        resource.key.name,
        resource.created_at,
        resource.modified_at,
        record.hyperparameters,
    )


@dataclass(frozen=True, slots=True)
class NodeKind:
    """A kind of record that is a node: the type in its ARNs, and how to read it."""

    arn_type: str
    record_kind: str
    read: Callable[[Resource], LineageNode]


_LINEAGE_TYPES = {EntityKind.ARTIFACT: "Artifact", EntityKind.CONTEXT: "Context", EntityKind.ACTION: "Action"}

# Records of trial components that clients create are entered here, after those of jobs.
NODE_KINDS: Sequence[NodeKind] = (
    NodeKind("artifact", EntityKind.ARTIFACT, node_of_entity),
    NodeKind("context", EntityKind.CONTEXT, node_of_entity),
    NodeKind("action", EntityKind.ACTION, node_of_entity),
    NodeKind("experiment-trial-component", JOB_RECORD, node_of_job),
)


def load_node(records: Records, arn: str) -> LineageNode:
    """Return the node of an ARN. InvalidRequest if it cannot be one; NotFound if it does not exist."""
    parse_node_arn(arn)
    found = load_nodes(records, [arn]).get(arn)
    if found is None:
        raise NotFound("lineage entity", arn)
    return found


def load_nodes(records: Records, arns: Sequence[str]) -> Mapping[str, LineageNode]:
    """Return the nodes of ARNs of one account, by ARN. Those that do not exist are left out."""
    wanted: dict[tuple[str, NodeKind], dict[str, str]] = defaultdict(dict)
    for arn in arns:
        key = parse_node_arn(arn)
        for kind in NODE_KINDS:
            if kind.arn_type == key.kind:
                wanted[key.account, kind][key.name] = arn
    return {
        by_name[resource.key.name]: kind.read(resource)
        for (account, kind), by_name in wanted.items()
        for resource in records.load_named(account, kind.record_kind, list(by_name))
    }


def parse_node_arn(arn: str) -> ResourceKey:
    """Return the account, the type and the name in the ARN of a node. InvalidRequest if it cannot be one."""
    found = _ARN.fullmatch(arn)
    if found is None or found["type"] not in {kind.arn_type for kind in NODE_KINDS}:
        raise InvalidRequest(
            f'"{arn}" is not the ARN of an artifact, a context, an action or a trial component, so it has no lineage.'
        )
    return ResourceKey(found["account"], found["type"], found["name"])
