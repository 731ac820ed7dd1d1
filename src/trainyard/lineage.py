"""The lineage: artifacts, contexts, actions, the associations between them, and queries that follow those.

The names are those of `sagemaker.lineage` and of its modules: `trainyard.lineage.artifact.Artifact` works, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Self

from trainyard._sdk.lineage.tree import job_node
from trainyard.foundation.errors import Unavailable
from trainyard.session import Session

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Action",
    "Artifact",
    "Association",
    "Context",
    "Edge",
    "LineageEntityEnum",
    "LineageFilter",
    "LineageQuery",
    "LineageQueryDirectionEnum",
    "LineageQueryResult",
    "LineageSourceEnum",
    "LineageTableVisualizer",
    "Vertex",
]

# As that of a package without files, so that Python asks the finder for `trainyard.lineage.artifact` and the like.
__path__: list[str] = []

Shape = dict[str, Any]

_COLUMNS = ("Name/Source", "Direction", "Type", "Association Type", "Lineage Type")
_MAX_TITLE, _TITLE_END = 48, 40


class LineageEntityEnum(StrEnum):
    """The kinds of entities that a filter can choose."""

    ACTION = "Action"
    ARTIFACT = "Artifact"
    CONTEXT = "Context"
    TRIAL_COMPONENT = "TrialComponent"


class LineageSourceEnum(StrEnum):
    """The types of entities that a filter can choose."""

    APPROVAL = "Approval"
    CHECKPOINT = "Checkpoint"
    DATASET = "DataSet"
    ENDPOINT = "Endpoint"
    IMAGE = "Image"
    MODEL = "Model"
    MODEL_DATA = "ModelData"
    MODEL_DEPLOYMENT = "ModelDeployment"
    MODEL_GROUP = "ModelGroup"
    MODEL_REPLACE = "ModelReplaced"
    PROCESSING_JOB = "ProcessingJob"
    TENSORBOARD = "TensorBoard"
    TRAINING_JOB = "TrainingJob"
    TRANSFORM_JOB = "TransformJob"


class LineageQueryDirectionEnum(StrEnum):
    """In which direction a query follows associations."""

    BOTH = "Both"
    ASCENDANTS = "Ascendants"
    DESCENDANTS = "Descendants"


class _Entity:
    """What artifacts, contexts and actions have in common: their members as the API returns them, in Python's case."""

    _prefix: ClassVar[str]

    def __init__(self, shape: Shape, session: Session) -> None:
        self._shape, self._session = shape, session
        self.properties: dict[str, str] = dict(shape.get("Properties", {}))

    def __repr__(self) -> str:
        return f"<{self._prefix.lower()} {self._shape.get(f'{self._prefix}Name') or self.arn}>"

    @property
    def arn(self) -> str:
        """The ARN of the entity."""
        return str(self._shape[f"{self._prefix}Arn"])

    @property
    def source_uri(self) -> str:
        """The URI of its source."""
        return str(self._shape["Source"]["SourceUri"])

    @property
    def type(self) -> str:
        """Its type, such as DataSet."""
        return str(self._shape[f"{self._prefix}Type"])

    def save(self) -> Self:
        """Store the properties as they are now."""
        self._call(f"Update{self._prefix}", **self._key(), Properties=self.properties)
        return self

    def delete(self, disassociate: bool = False) -> None:
        """Delete the entity.

        Args:
            disassociate: Whether to delete its associations first. An entity with associations is not deleted.
        """
        if disassociate:
            ends = ({"source_arn": self.arn}, {"destination_arn": self.arn})
            for each in [found for end in ends for found in Association.list(**end, sagemaker_session=self._session)]:
                each.delete()
        self._call(f"Delete{self._prefix}", **self._key())

    def set_tags(self, tags: Sequence[Mapping[str, str]]) -> None:
        """Add tags.

        Args:
            tags: Tags with a Key and a Value.
        """
        self._call("AddTags", ResourceArn=self.arn, Tags=[dict(tag) for tag in tags])

    def _key(self) -> Shape:
        name = f"{self._prefix}Name"
        return {name: self._shape[name]}

    def _call(self, operation: str, **request: Any) -> Shape:
        return self._session.api.call("sagemaker", operation, **request)

    @classmethod
    def _load(cls, session: Session | None, **key: str) -> Self:
        used = session or Session()
        return cls(used.api.call("sagemaker", f"Describe{cls._prefix}", **key), used)

    @classmethod
    def _list(cls, session: Session | None, **asked: Any) -> Iterator[Self]:
        used = session or Session()
        for each in _pages(used, f"List{cls._prefix}s", f"{cls._prefix}Summaries", asked):
            yield cls(each, used)


class Artifact(_Entity):
    """Something at a URI, such as data on S3 or an image. There is one artifact for each source and content.

    `create`, `load` and `list` return artifacts.

    Args:
        shape: The members of the artifact, as the API returns them.
        session: The session to use.
    """

    _prefix = "Artifact"

    @property
    def artifact_arn(self) -> str:
        """The ARN of the artifact."""
        return self.arn

    @property
    def artifact_name(self) -> str:
        """Its title; empty if it has none."""
        return str(self._shape.get("ArtifactName", ""))

    @classmethod
    def create(
        cls,
        artifact_name: str | None = None,
        source_uri: str | None = None,
        source_types: Sequence[Mapping[str, str]] | None = None,
        artifact_type: str | None = None,
        properties: Mapping[str, str] | None = None,
        tags: Sequence[Mapping[str, str]] | None = None,
        sagemaker_session: Session | None = None,
    ) -> "Artifact":
        """Create an artifact.

        Args:
            artifact_name: A title.
            source_uri: The URI of the source.
            source_types: What identifies the content, such as `{"SourceIdType": "S3ETag", "Value": "…"}`.
            artifact_type: The type, such as DataSet.
            properties: Properties to keep with it.
            tags: Tags with a Key and a Value.
            sagemaker_session: The session to use. Default: a new one.
        """
        session = sagemaker_session or Session()
        source = {"SourceUri": source_uri} | ({"SourceTypes": list(source_types)} if source_types else {})
        given = _given(ArtifactName=artifact_name, ArtifactType=artifact_type, Properties=properties, Tags=tags)
        made = session.api.call("sagemaker", "CreateArtifact", Source=source, **given)
        return cls.load(made["ArtifactArn"], session)

    @classmethod
    def load(cls, artifact_arn: str, sagemaker_session: Session | None = None) -> "Artifact":
        """Return an artifact.

        Args:
            artifact_arn: Its ARN.
            sagemaker_session: The session to use. Default: a new one.
        """
        return cls._load(sagemaker_session, ArtifactArn=artifact_arn)

    @classmethod
    def list(
        cls,
        source_uri: str | None = None,
        artifact_type: str | None = None,
        created_before: datetime | None = None,
        created_after: datetime | None = None,
        sagemaker_session: Session | None = None,
    ) -> "Iterator[Artifact]":
        """Return the artifacts, the newest first.

        Args:
            source_uri: Only those of this source.
            artifact_type: Only those of this type.
            created_before: Only those created before.
            created_after: Only those created after.
            sagemaker_session: The session to use. Default: a new one.
        """
        times = _given(CreatedBefore=created_before, CreatedAfter=created_after)
        return cls._list(sagemaker_session, **_given(SourceUri=source_uri, ArtifactType=artifact_type), **times)

    def _key(self) -> Shape:
        return {"ArtifactArn": self.arn}


class _NamedEntity(_Entity):
    """A context or an action."""

    @classmethod
    def _create(cls, name: str, source: Shape, type_: str, session: Session | None, **given: Any) -> Self:
        used = session or Session()
        request = {f"{cls._prefix}Name": name, f"{cls._prefix}Type": type_, "Source": source}
        used.api.call("sagemaker", f"Create{cls._prefix}", **request, **_given(**given))
        return cls._load(used, **{f"{cls._prefix}Name": name})


class Context(_NamedEntity):
    """A logical group of other entities, such as an endpoint or a group of model packages.

    Args:
        shape: The members of the context, as the API returns them.
        session: The session to use.
    """

    _prefix = "Context"

    @property
    def context_arn(self) -> str:
        """The ARN of the context."""
        return self.arn

    @property
    def context_name(self) -> str:
        """The name of the context."""
        return str(self._shape["ContextName"])

    @classmethod
    def create(
        cls,
        context_name: str,
        source_uri: str,
        source_type: str | None = None,
        context_type: str = "",
        description: str | None = None,
        properties: Mapping[str, str] | None = None,
        tags: Sequence[Mapping[str, str]] | None = None,
        sagemaker_session: Session | None = None,
    ) -> "Context":
        """Create a context.

        Args:
            context_name: Its name.
            source_uri: The URI of its source.
            source_type: The type of its source.
            context_type: Its type, such as Endpoint.
            description: A description.
            properties: Properties to keep with it.
            tags: Tags with a Key and a Value.
            sagemaker_session: The session to use. Default: a new one.
        """
        more = {"Description": description, "Properties": properties, "Tags": tags}
        return cls._create(context_name, _source(source_uri, source_type), context_type, sagemaker_session, **more)

    @classmethod
    def load(cls, context_name: str, sagemaker_session: Session | None = None) -> "Context":
        """Return a context.

        Args:
            context_name: Its name.
            sagemaker_session: The session to use. Default: a new one.
        """
        return cls._load(sagemaker_session, ContextName=context_name)

    @classmethod
    def list(
        cls,
        source_uri: str | None = None,
        context_type: str | None = None,
        sagemaker_session: Session | None = None,
    ) -> "Iterator[Context]":
        """Return the contexts, the newest first.

        Args:
            source_uri: Only those of this source.
            context_type: Only those of this type.
            sagemaker_session: The session to use. Default: a new one.
        """
        return cls._list(sagemaker_session, **_given(SourceUri=source_uri, ContextType=context_type))


class Action(_NamedEntity):
    """Something that was done, such as a deployment or an approval.

    Args:
        shape: The members of the action, as the API returns them.
        session: The session to use.
    """

    _prefix = "Action"

    @property
    def action_arn(self) -> str:
        """The ARN of the action."""
        return self.arn

    @property
    def action_name(self) -> str:
        """The name of the action."""
        return str(self._shape["ActionName"])

    @property
    def status(self) -> str:
        """Its status; empty if it has none."""
        return str(self._shape.get("Status", ""))

    @classmethod
    def create(
        cls,
        action_name: str,
        source_uri: str,
        source_type: str | None = None,
        action_type: str = "",
        description: str | None = None,
        status: str | None = None,
        properties: Mapping[str, str] | None = None,
        tags: Sequence[Mapping[str, str]] | None = None,
        sagemaker_session: Session | None = None,
    ) -> "Action":
        """Create an action.

        Args:
            action_name: Its name.
            source_uri: The URI of its source.
            source_type: The type of its source.
            action_type: Its type, such as ModelDeployment.
            description: A description.
            status: Its status, such as Completed.
            properties: Properties to keep with it.
            tags: Tags with a Key and a Value.
            sagemaker_session: The session to use. Default: a new one.
        """
        more = {"Description": description, "Status": status, "Properties": properties, "Tags": tags}
        return cls._create(action_name, _source(source_uri, source_type), action_type, sagemaker_session, **more)

    @classmethod
    def load(cls, action_name: str, sagemaker_session: Session | None = None) -> "Action":
        """Return an action.

        Args:
            action_name: Its name.
            sagemaker_session: The session to use. Default: a new one.
        """
        return cls._load(sagemaker_session, ActionName=action_name)

    @classmethod
    def list(
        cls,
        source_uri: str | None = None,
        action_type: str | None = None,
        sagemaker_session: Session | None = None,
    ) -> "Iterator[Action]":
        """Return the actions, the newest first.

        Args:
            source_uri: Only those of this source.
            action_type: Only those of this type.
            sagemaker_session: The session to use. Default: a new one.
        """
        return cls._list(sagemaker_session, **_given(SourceUri=source_uri, ActionType=action_type))


class Association:
    """A directed association between two entities. `create` and `list` return associations.

    Args:
        shape: The members of the association, as the API returns them.
        session: The session to use.
    """

    def __init__(self, shape: Mapping[str, Any], session: Session) -> None:
        self.source_arn, self.destination_arn = str(shape["SourceArn"]), str(shape["DestinationArn"])
        self.source_type, self.destination_type = shape.get("SourceType"), shape.get("DestinationType")
        self.source_name, self.destination_name = shape.get("SourceName"), shape.get("DestinationName")
        self.association_type = shape.get("AssociationType")
        self._session = session

    @classmethod
    def create(
        cls,
        source_arn: str,
        destination_arn: str,
        association_type: str | None = None,
        sagemaker_session: Session | None = None,
    ) -> "Association":
        """Associate two entities.

        Args:
            source_arn: ARN of the entity where it begins.
            destination_arn: ARN of the entity where it ends.
            association_type: ContributedTo, AssociatedWith, DerivedFrom, Produced or SameAs.
            sagemaker_session: The session to use. Default: a new one.
        """
        session = sagemaker_session or Session()
        ends = {"SourceArn": source_arn, "DestinationArn": destination_arn}
        given = _given(AssociationType=association_type)
        session.api.call("sagemaker", "AddAssociation", **ends, **given)
        return cls(ends | given, session)

    @classmethod
    def list(
        cls,
        source_arn: str | None = None,
        destination_arn: str | None = None,
        source_type: str | None = None,
        destination_type: str | None = None,
        association_type: str | None = None,
        sagemaker_session: Session | None = None,
    ) -> "Iterator[Association]":
        """Return the associations, the newest first.

        Args:
            source_arn: Only those that begin here.
            destination_arn: Only those that end here.
            source_type: Only those that begin at an entity of this type.
            destination_type: Only those that end at an entity of this type.
            association_type: Only those of this type.
            sagemaker_session: The session to use. Default: a new one.
        """
        session = sagemaker_session or Session()
        ends = _given(SourceArn=source_arn, DestinationArn=destination_arn, AssociationType=association_type)
        types = _given(SourceType=source_type, DestinationType=destination_type)
        for each in _pages(session, "ListAssociations", "AssociationSummaries", ends | types):
            yield cls(each, session)

    def delete(self) -> None:
        """Delete the association. The entities stay."""
        ends = {"SourceArn": self.source_arn, "DestinationArn": self.destination_arn}
        self._session.api.call("sagemaker", "DeleteAssociation", **ends)


class Vertex:
    """An entity that a query found.

    Args:
        arn: Its ARN.
        lineage_entity: Its kind, such as Artifact.
        lineage_source: Its type, such as DataSet.
        sagemaker_session: The session to use.
    """

    def __init__(self, arn: str, lineage_entity: str, lineage_source: str, sagemaker_session: Session) -> None:
        self.arn, self.lineage_entity, self.lineage_source = arn, lineage_entity, lineage_source
        self._session = sagemaker_session

    def __repr__(self) -> str:
        return f"<{self.lineage_source} {self.arn.rpartition('/')[2]}>"

    def to_lineage_object(self) -> Artifact | Context | Action:
        """Return the artifact, the context or the action.

        Raises:
            ValueError: It is a trial component.
        """
        name = self.arn.rpartition("/")[2]
        match self.lineage_entity:
            case LineageEntityEnum.ARTIFACT:
                return Artifact.load(self.arn, self._session)
            case LineageEntityEnum.CONTEXT:
                return Context.load(name, self._session)
            case LineageEntityEnum.ACTION:
                return Action.load(name, self._session)
        raise ValueError(f"{self.arn} is a trial component, which is no object of the lineage.")


class Edge:
    """An association that a query followed.

    Args:
        source_arn: ARN of the entity where it begins.
        destination_arn: ARN of the entity where it ends.
        association_type: Its type, such as Produced.
    """

    def __init__(self, source_arn: str, destination_arn: str, association_type: str | None) -> None:
        self.source_arn, self.destination_arn = source_arn, destination_arn
        self.association_type = association_type

    def __repr__(self) -> str:
        source, destination = (arn.rpartition("/")[2] for arn in (self.source_arn, self.destination_arn))
        return f"<{source} {self.association_type} {destination}>"


class LineageQueryResult:
    """What a query found.

    Args:
        edges: The associations.
        vertices: The entities.
    """

    def __init__(self, edges: Sequence[Edge] | None = None, vertices: Sequence[Vertex] | None = None) -> None:
        self.edges, self.vertices = [*(edges or ())], [*(vertices or ())]


class LineageFilter:
    """Which entities a query returns. What is not given does not restrict it.

    Args:
        entities: Kinds of entities, such as `LineageEntityEnum.ARTIFACT`.
        sources: Types of entities, such as `LineageSourceEnum.DATASET`.
        created_before: Only those created before.
        created_after: Only those created after.
        modified_before: Only those changed before.
        modified_after: Only those changed after.
        properties: Only those with one of these properties.
    """

    def __init__(
        self,
        entities: Sequence[LineageEntityEnum | str] | None = None,
        sources: Sequence[LineageSourceEnum | str] | None = None,
        created_before: datetime | None = None,
        created_after: datetime | None = None,
        modified_before: datetime | None = None,
        modified_after: datetime | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self._shape = _given(
            LineageTypes=[str(each) for each in entities] if entities else None,
            Types=[str(each) for each in sources] if sources else None,
            CreatedBefore=created_before,
            CreatedAfter=created_after,
            ModifiedBefore=modified_before,
            ModifiedAfter=modified_after,
            Properties=dict(properties) if properties else None,
        )

    def to_request(self) -> Shape:
        """Return the filter as QueryLineage takes it."""
        return self._shape


class LineageQuery:
    """Follows associations from an entity.

    Args:
        sagemaker_session: The session to use.
    """

    def __init__(self, sagemaker_session: Session) -> None:
        self._session = sagemaker_session

    def query(
        self,
        start_arns: Sequence[str],
        direction: LineageQueryDirectionEnum = LineageQueryDirectionEnum.BOTH,
        include_edges: bool = True,
        query_filter: LineageFilter | None = None,
        max_depth: int = 10,
    ) -> LineageQueryResult:
        """Return what an entity came from or went into.

        Args:
            start_arns: The ARN of the entity, in a list.
            direction: Whether to follow associations back, on, or both.
            include_edges: Whether to return the associations, and the entities on the way to those that match.
            query_filter: Which entities to return.
            max_depth: How many associations away an entity may be.
        """
        found = LineageQueryResult()
        asked = {
            "StartArns": list(start_arns),
            "Direction": str(direction),
            "IncludeEdges": include_edges,
            "Filters": query_filter.to_request() if query_filter else {},
            "MaxDepth": max_depth,
        }
        vertices, edges = dict[str, Vertex](), dict[tuple[str, str], Edge]()
        while True:
            page = self._session.api.call("sagemaker", "QueryLineage", **asked)
            for each in page["Vertices"]:
                vertices[each["Arn"]] = Vertex(each["Arn"], each["LineageType"], each["Type"], self._session)
            for each in page["Edges"]:
                ends = each["SourceArn"], each["DestinationArn"]
                edges[ends] = Edge(*ends, each.get("AssociationType"))
            if not page.get("NextToken"):
                found.vertices, found.edges = list(vertices.values()), list(edges.values())
                return found
            asked["NextToken"] = page["NextToken"]


class LineageTableVisualizer:
    """Shows the associations of an entity as a table.

    Args:
        sagemaker_session: The session to use.
    """

    def __init__(self, sagemaker_session: Session) -> None:
        self._session = sagemaker_session

    def show(
        self,
        trial_component_name: str | None = None,
        training_job_name: str | None = None,
        model_package_arn: str | None = None,
        endpoint_arn: str | None = None,
        artifact_arn: str | None = None,
        context_arn: str | None = None,
        actions_arn: str | None = None,
    ) -> "pd.DataFrame | None":
        """Return a table of what went into an entity and came out of it; None if it has no lineage.

        Args:
            trial_component_name: Name of the trial component of a job.
            training_job_name: Name of a training job.
            model_package_arn: ARN of a model package.
            endpoint_arn: ARN of an endpoint.
            artifact_arn: ARN of an artifact.
            context_arn: ARN of a context.
            actions_arn: ARN of an action.

        Raises:
            Unavailable: pandas is not installed.
        """
        job = training_job_name or (trial_component_name or "").removesuffix("-aws-training-job")
        arn = artifact_arn or context_arn or actions_arn
        if job:
            arn = job_node(self._session.api, job)
        elif model_package_arn:
            arn = self._first("ListArtifacts", "ArtifactSummaries", "ArtifactArn", model_package_arn)
        elif endpoint_arn:
            arn = self._first("ListContexts", "ContextSummaries", "ContextArn", endpoint_arn)
        return None if arn is None else _pandas().DataFrame(self.rows(arn), columns=list(_COLUMNS))

    def rows(self, arn: str) -> list[list[str | None]]:
        """Return the rows of the table without pandas: name, direction, type, association type, lineage type.

        Args:
            arn: ARN of the entity.
        """
        inputs = Association.list(destination_arn=arn, sagemaker_session=self._session)
        outputs = Association.list(source_arn=arn, sagemaker_session=self._session)
        found: list[list[str | None]] = []
        for each in inputs:
            title = self._title(each.source_arn, each.source_name)
            found.append([title, "Input", each.source_type, each.association_type, _arn_type(each.source_arn)])
        for each in outputs:
            title, kind = self._title(each.destination_arn, each.destination_name), _arn_type(each.destination_arn)
            found.append([title, "Output", each.destination_type, each.association_type, kind])
        return found

    def _first(self, operation: str, items: str, member: str, uri: str) -> str | None:
        listed = self._session.api.call("sagemaker", operation, SourceUri=uri)[items]
        return str(listed[0][member]) if listed else None

    def _title(self, arn: str, name: str | None) -> str:
        if name or _arn_type(arn) != "artifact":
            return name or arn.rpartition("/")[2]
        uri = Artifact.load(arn, self._session).source_uri
        return uri if len(uri) <= _MAX_TITLE else f"{uri[:5]}...{uri[-_TITLE_END:]}"


def _pages(session: Session, operation: str, items: str, asked: Mapping[str, Any]) -> Iterator[Shape]:
    request = {"MaxResults": 100, **asked}
    while True:
        page = session.api.call("sagemaker", operation, **request)
        yield from page[items]
        if not page.get("NextToken"):
            return
        request["NextToken"] = page["NextToken"]


def _given(**members: Any) -> Shape:
    return {name: value for name, value in members.items() if value is not None}


def _source(uri: str, source_type: str | None) -> Shape:
    return {"SourceUri": uri} | ({"SourceType": source_type} if source_type else {})


def _arn_type(arn: str) -> str:
    return arn.split(":")[5].partition("/")[0]


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise Unavailable(
            "The table needs pandas, which is not installed: pip install 'trainyard[pandas]'. "
            "rows() returns the same rows without it."
        ) from error
    return pandas
