"""Artifacts, contexts and actions as the records store them.

An artifact is named after its source, so that there is at most one for each, and its name begins with the digest of the
URI, so that all artifacts of a URI are a range of the index of names. Contexts and actions are named by users. For them
the digest of the URI takes the place of a status, which lists have an index for; the status of an action is in its
body.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trainyard.foundation.arns import arn
from trainyard.foundation.plain import from_plain, to_plain
from trainyard.server.records.contract import Change, Draft, Resource, ResourceKey

_DIGEST_LENGTH = 32


class EntityKind(StrEnum):
    """The kinds of entities, as the records know them."""

    ARTIFACT = "lineage-artifact"
    CONTEXT = "lineage-context"
    ACTION = "lineage-action"


# The type of resource in the ARN of each kind.
ARN_TYPES = {EntityKind.ARTIFACT: "artifact", EntityKind.CONTEXT: "context", EntityKind.ACTION: "action"}


@dataclass(frozen=True, slots=True)
class SourceId:
    """What identifies the content of a source. `kind` is a word of AWS, such as S3ETag; a context may have none."""

    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an entity came from: the commit of a repository, and what made it."""

    commit: str = ""
    repository: str = ""
    generated_by: str = ""
    project: str = ""


@dataclass(frozen=True, slots=True)
class Entity:
    """An artifact, a context or an action. The name of an artifact is a title: it may be empty or occur twice."""

    kind: EntityKind
    arn: str
    name: str
    type: str
    source_uri: str
    source_ids: tuple[SourceId, ...] = ()
    description: str = ""
    status: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    origin: Origin = Origin()
    # ARNs of those who created and changed it; empty for the yard itself.
    created_by: str = ""
    modified_by: str = ""


def artifact_id(uri: str, ids: tuple[SourceId, ...] = ()) -> str:
    """Return the id of the artifact of a source. All those of one URI begin with `source_digest`."""
    content = json.dumps(sorted([each.kind, each.value] for each in ids))
    return source_digest(uri) + _digest(content)


def source_digest(uri: str) -> str:
    return _digest(uri)


def entity_arn(kind: EntityKind, region: str, account: str, name: str) -> str:
    """Return the ARN of an entity. Of an artifact, `name` is the id."""
    return arn("sagemaker", region, account, f"{ARN_TYPES[kind]}/{name}")


def draft_of(entity: Entity, *, tags: Mapping[str, str] | None = None) -> Draft:
    """Return the record of an entity, under the account and the name of its ARN."""
    _, _, _, region, account, resource = entity.arn.split(":", 5)
    return Draft(
        ResourceKey(account, entity.kind, resource.partition("/")[2]),
        region,
        to_plain(entity),
        status=_listed_status(entity),
        tags=tags or {},
        arn=entity.arn,
    )


def entity_of(resource: Resource) -> Entity:
    return from_plain(Entity, resource.body)


def change_to(entity: Entity) -> Change:
    """Return the change that stores an entity. Its source and its type never change."""
    return Change(body=to_plain(entity))


def _listed_status(entity: Entity) -> str:
    """Return what lists find the entity by: an artifact by its type, any other by its source."""
    return entity.type if entity.kind is EntityKind.ARTIFACT else source_digest(entity.source_uri)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
