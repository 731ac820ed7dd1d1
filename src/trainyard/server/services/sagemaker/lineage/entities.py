"""Create, describe, update, delete and list artifacts, contexts and actions."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainyard.foundation.errors import AlreadyExists, InvalidRequest, NotFound
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
from trainyard.server.records.contract import AssociationQuery, Query, Resource, SortBy
from trainyard.server.services.contract import Call, Operations, PlainOperation, Shape
from trainyard.server.services.sagemaker.lineage.node_access import load_by_arn
from trainyard.server.services.tag_rules import require_tags
from trainyard.server.services.visibility import load_visible
from trainyard.wire.fault import Fault

# The default of AWS.
PAGE = 10
# Entities read for one answer with a filter that no index has. The answer may then be short and have a token.
MAX_READ = 2000
MAX_PROPERTIES = 30

_BATCH = 100
_ORIGIN = {"CommitId": "commit", "Repository": "repository", "GeneratedBy": "generated_by", "ProjectId": "project"}


@dataclass(frozen=True, slots=True)
class EntityWords:
    """The words of AWS for one kind of entity: the prefix of its members, such as Artifact in ArtifactArn."""

    kind: EntityKind
    prefix: str

    @property
    def arn(self) -> str:
        return f"{self.prefix}Arn"

    @property
    def name(self) -> str:
        return f"{self.prefix}Name"

    @property
    def is_artifact(self) -> bool:
        return self.kind is EntityKind.ARTIFACT


_ARTIFACT = EntityWords(EntityKind.ARTIFACT, "Artifact")
_CONTEXT = EntityWords(EntityKind.CONTEXT, "Context")
_ACTION = EntityWords(EntityKind.ACTION, "Action")


def _create(words: EntityWords) -> PlainOperation:
    def create(call: Call, shape: Shape) -> Shape:
        tags = {tag["Key"]: tag["Value"] for tag in shape.get("Tags", ())}
        require_tags(tags)
        entity = _new_entity(call, shape, words)
        try:
            call.yard.records.create(draft_of(entity, tags=tags), now=call.now)
        except AlreadyExists as error:
            raise Fault("ValidationException", _duplicate_message(words, entity)) from error
        return {words.arn: entity.arn}

    create.__doc__ = f"Create one {words.kind.removeprefix('lineage-')} of a lineage."
    return create


def _describe(words: EntityWords) -> PlainOperation:
    def describe(call: Call, shape: Shape) -> Shape:
        resource = _load(call, shape[words.arn if words.is_artifact else words.name], words)
        entity = entity_of(resource)
        return {
            **_summary(resource, entity, words),
            "Description": entity.description or None,
            "Properties": dict(entity.properties),
            "MetadataProperties": _origin_shape(entity.origin),
            "CreatedBy": _user_context(entity.created_by),
            "LastModifiedBy": _user_context(entity.modified_by),
        }

    describe.__doc__ = f"Describe one {words.kind.removeprefix('lineage-')} of a lineage."
    return describe


def _update(words: EntityWords) -> PlainOperation:
    def update(call: Call, shape: Shape) -> Shape:
        while True:
            resource = _load(call, shape[words.arn if words.is_artifact else words.name], words)
            entity = _changed_entity(call, entity_of(resource), shape, words)
            if call.yard.records.apply(resource, change_to(entity), now=call.now) is not None:
                return {words.arn: entity.arn}

    update.__doc__ = f"Change the name, properties or status of one {words.kind.removeprefix('lineage-')}."
    return update


def _delete(words: EntityWords) -> PlainOperation:
    def delete(call: Call, shape: Shape) -> Shape:
        while True:
            resource = _load(call, _deleted_name(shape, words), words)
            entity = entity_of(resource)
            _require_unassociated(call, resource, entity, words)
            if call.yard.records.delete(resource, now=call.now):
                return {words.arn: entity.arn}

    delete.__doc__ = f"Delete one {words.kind.removeprefix('lineage-')} that has no associations."
    return delete


def _list(words: EntityWords) -> PlainOperation:
    def list_entities(call: Call, shape: Shape) -> Shape:
        found, token = _find_page(call, shape, words)
        listed = [_summary(resource, entity_of(resource), words) for resource in found]
        return {f"{words.prefix}Summaries": listed} | ({"NextToken": token} if token else {})

    list_entities.__doc__ = f"List {words.kind.removeprefix('lineage-')}s by source, type and time."
    return list_entities


OPERATIONS: Operations = {
    f"{verb}{words.prefix}{'s' if verb == 'List' else ''}": make(words)
    for words in (_ARTIFACT, _CONTEXT, _ACTION)
    for verb, make in {
        "Create": _create,
        "Describe": _describe,
        "Update": _update,
        "Delete": _delete,
        "List": _list,
    }.items()
}


def _new_entity(call: Call, shape: Shape, words: EntityWords) -> Entity:
    source = shape["Source"]
    uri, ids = source["SourceUri"], _source_ids(source)
    name = artifact_id(uri, ids) if words.is_artifact else shape[words.name]
    return Entity(
        kind=words.kind,
        arn=entity_arn(words.kind, call.region, call.account, name),
        name=shape.get(words.name, ""),
        type=shape[f"{words.prefix}Type"],
        source_uri=uri,
        source_ids=ids,
        description=shape.get("Description", ""),
        status=shape.get("Status", ""),
        properties=_require_few(shape.get("Properties", {})),
        origin=Origin(**{_ORIGIN[member]: text for member, text in shape.get("MetadataProperties", {}).items()}),
        created_by=call.caller.arn,
    )


def _source_ids(source: Shape) -> tuple[SourceId, ...]:
    if types := source.get("SourceTypes"):
        return tuple(SourceId(each["SourceIdType"], each["Value"]) for each in types)
    if "SourceType" in source or "SourceId" in source:
        return (SourceId(source.get("SourceType", ""), source.get("SourceId", "")),)
    return ()


def _require_few(properties: Mapping[str, str]) -> dict[str, str]:
    if len(properties) > MAX_PROPERTIES:
        raise InvalidRequest(
            f"The entity would have {len(properties)} properties; at most {MAX_PROPERTIES} are allowed."
        )
    return dict(properties)


def _duplicate_message(words: EntityWords, entity: Entity) -> str:
    if words.is_artifact:
        return f"Artifact with the source {entity.source_uri} already exists: {entity.arn}"
    return f"{words.prefix} {entity.name} already exists: {entity.arn}"


def _changed_entity(call: Call, entity: Entity, shape: Shape, words: EntityWords) -> Entity:
    removed = shape.get("PropertiesToRemove", ())
    # Given properties replace all that were there.
    given = shape.get("Properties", entity.properties)
    return replace(
        entity,
        name=shape.get("ArtifactName", entity.name) if words.is_artifact else entity.name,
        description=shape.get("Description", entity.description),
        status=shape.get("Status", entity.status),
        properties=_require_few({name: value for name, value in given.items() if name not in removed}),
        modified_by=call.caller.arn,
    )


def _load(call: Call, name: str, words: EntityWords) -> Resource:
    """Load an entity by its name or its ARN."""
    try:
        return load_by_arn(call, name, words.kind) if name.startswith("arn:") else load_visible(call, words.kind, name)
    except NotFound as error:
        arn = name if name.startswith("arn:") else entity_arn(words.kind, call.region, call.account, name)
        raise Fault("ResourceNotFound", f"{words.prefix} '{arn}' does not exist.") from error


def _deleted_name(shape: Shape, words: EntityWords) -> str:
    """Return the name or the ARN of what to delete. An artifact can also be named by its source."""
    if not words.is_artifact:
        name: str = shape[words.name]
        return name
    if ("ArtifactArn" in shape) == ("Source" in shape):
        raise InvalidRequest("Give either ArtifactArn or Source.")
    if "ArtifactArn" in shape:
        arn: str = shape["ArtifactArn"]
        return arn
    return artifact_id(shape["Source"]["SourceUri"], _source_ids(shape["Source"]))


def _require_unassociated(call: Call, resource: Resource, entity: Entity, words: EntityWords) -> None:
    one = AssociationQuery(resource.key.account, limit=1)
    for query in (replace(one, source=entity.arn), replace(one, destination=entity.arn)):
        if call.yard.records.find_associations(query).associations:
            raise Fault(
                "ValidationException",
                f"{words.prefix} '{entity.arn}' has associations; delete those first, with DeleteAssociation.",
            )


def _find_page(call: Call, shape: Shape, words: EntityWords) -> tuple[list[Resource], str | None]:
    """Return one page of entities, and the token of the next. Types of contexts and actions have no index."""
    query, wanted = _query(call, shape, words), shape.get(f"{words.prefix}Type")
    if wanted is None or words.is_artifact:
        page = call.yard.records.find(query)
        return list(page.resources), page.next_after
    found: list[Resource] = []
    batch = replace(query, limit=_BATCH)
    for _ in range(MAX_READ // _BATCH):
        page = call.yard.records.find(batch)
        for number, resource in enumerate(page.resources, 1):
            if entity_of(resource).type != wanted:
                continue
            found.append(resource)
            if len(found) == query.limit:
                # The token of a page that ends exactly here.
                return found, call.yard.records.find(replace(batch, limit=number)).next_after
        if page.next_after is None:
            return found, None
        batch = replace(batch, after=page.next_after)
    return found, batch.after


def _query(call: Call, shape: Shape, words: EntityWords) -> Query:
    digest = source_digest(shape["SourceUri"]) if "SourceUri" in shape else ""
    return Query(
        words.kind,
        account=call.caller.scope,
        name_prefix=digest if words.is_artifact else "",
        status=shape.get("ArtifactType", "") if words.is_artifact else digest,
        created_after=shape.get("CreatedAfter"),
        created_before=shape.get("CreatedBefore"),
        sort_by=SortBy.NAME if shape.get("SortBy") == "Name" else SortBy.CREATED,
        descending=shape.get("SortOrder", "Descending") == "Descending",
        limit=shape.get("MaxResults", PAGE),
        after=shape.get("NextToken", ""),
    )


def _summary(resource: Resource, entity: Entity, words: EntityWords) -> Shape:
    return {
        words.arn: entity.arn,
        words.name: entity.name or None,
        "Source": {"SourceUri": entity.source_uri} | _source_id_shape(entity, words),
        f"{words.prefix}Type": entity.type,
        **({"Status": entity.status or None} if words.kind is EntityKind.ACTION else {}),
        "CreationTime": resource.created_at,
        "LastModifiedTime": resource.modified_at,
    }


def _source_id_shape(entity: Entity, words: EntityWords) -> dict[str, Any]:
    if words.is_artifact:
        return {"SourceTypes": [{"SourceIdType": each.kind, "Value": each.value} for each in entity.source_ids]}
    # There is one at most, and either part of it may be missing.
    parts = {"SourceType": one.kind, "SourceId": one.value} if (one := next(iter(entity.source_ids), None)) else {}
    return {member: text for member, text in parts.items() if text}


def _origin_shape(origin: Origin) -> Shape | None:
    members = {member: getattr(origin, name) for member, name in _ORIGIN.items()}
    return {member: text for member, text in members.items() if text} or None


def _user_context(arn: str) -> Shape | None:
    return {"IamIdentity": {"Arn": arn}} if arn else None
