"""Adds entities and associations to the lineage. Each call is safe to repeat: what is there already stays."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from trainyard.foundation.errors import AlreadyExists
from trainyard.server.lineage.entities import (
    Entity,
    EntityKind,
    Origin,
    SourceId,
    artifact_id,
    change_to,
    draft_of,
    entity_arn,
    entity_of,
    source_digest,
)
from trainyard.server.records.contract import Association, Query, Records, SortBy


@dataclass(frozen=True, slots=True)
class GraphNode:
    """An end of an association: its ARN, and its type in lists of associations."""

    arn: str
    type: str


@dataclass(frozen=True, slots=True)
class ActionState:
    """An action to record: its name, what it acted on, and how it went."""

    name: str
    type: str
    uri: str
    status: str
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LineageGraph:
    """The lineage of one account, at one moment."""

    records: Records
    account: str
    region: str
    now: datetime

    def add_artifact(
        self,
        type: str,  # noqa: A002 - the domain's word
        uri: str,
        *ids: SourceId,
        name: str = "",
        properties: Mapping[str, str] | None = None,
        origin: Origin | None = None,
    ) -> GraphNode:
        """Add the artifact of a source. One that is there keeps its type, as whoever made it first knew it best."""
        arn = entity_arn(EntityKind.ARTIFACT, self.region, self.account, artifact_id(uri, ids))
        entity = Entity(
            EntityKind.ARTIFACT,
            arn,
            name,
            type,
            uri,
            ids,
            properties=properties or {},
            origin=origin or Origin(),
        )
        return self._add(entity)

    def newest_artifact(self, uri: str) -> GraphNode | None:
        """Return the newest artifact of a URI, whatever its content; None if there is none."""
        newest = Query(
            EntityKind.ARTIFACT,
            account=self.account,
            name_prefix=source_digest(uri),
            sort_by=SortBy.CREATED,
            descending=True,
            limit=1,
        )
        found = self.records.find(newest).resources
        return _node(entity_of(found[0])) if found else None

    def add_context(self, name: str, type: str, uri: str) -> GraphNode:  # noqa: A002 - the domain's word
        arn = entity_arn(EntityKind.CONTEXT, self.region, self.account, name)
        return self._add(Entity(EntityKind.CONTEXT, arn, name, type, uri, (SourceId("ARN", ""),)))

    def put_action(self, action: ActionState) -> GraphNode:
        """Add an action, or bring the status and the properties of one up to date."""
        arn = entity_arn(EntityKind.ACTION, self.region, self.account, action.name)
        entity = Entity(
            EntityKind.ACTION,
            arn,
            action.name,
            action.type,
            action.uri,
            (SourceId("ARN", ""),),
            status=action.status,
            properties=action.properties,
        )
        return self._add(entity, replaces=True)

    def associate(self, source: GraphNode, destination: GraphNode, kind: str) -> None:
        with suppress(AlreadyExists):
            self.records.associate(
                Association(
                    self.account,
                    source.arn,
                    destination.arn,
                    kind,
                    self.now,
                    source.type,
                    destination.type,
                )
            )

    def _add(self, entity: Entity, *, replaces: bool = False) -> GraphNode:
        draft = draft_of(entity)
        try:
            self.records.create(draft, now=self.now)
        except AlreadyExists:
            known = self.records.load(draft.key)
            if replaces and entity_of(known) != entity:
                self.records.apply(known, change_to(entity), now=self.now)
            return _node(entity_of(known))
        return _node(entity)


def _node(entity: Entity) -> GraphNode:
    return GraphNode(entity.arn, entity.type)
