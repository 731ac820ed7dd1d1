"""Records what an ended training job read, ran and wrote."""

from dataclasses import dataclass
from datetime import datetime

from trainyard.foundation.jobs.attempts import Attempt
from trainyard.foundation.jobs.contents import SourceContent
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.server.control.lineage.graph import GraphNode, LineageGraph
from trainyard.server.jobs.instance_jobs import request_of
from trainyard.server.jobs.training import job_of
from trainyard.server.lineage.entities import Origin, SourceId
from trainyard.server.lineage.environments import environment_uri, packages_in
from trainyard.server.lineage.job_records import JobRecord, body_of, draft_of, is_of, job_record_of
from trainyard.server.lineage.nodes import JOB_TYPE_PREFIX
from trainyard.server.records.contract import AssociationQuery, Change, Records, Resource
from trainyard.server.source_contents import SourceContents, read_in_time

# Tags by which an SDK says which commit the code is.
COMMIT_TAG, REPOSITORY_TAG = "trainyard:commit", "trainyard:repository"

_IMAGE, _DATA, _CODE, _ENVIRONMENT, _CHECKPOINT = "Image", "DataSet", "Code", "Environment", "Checkpoint"
_OUTPUT_TYPES = {"model": "Model", "output": "Output"}


@dataclass(frozen=True, slots=True)
class JobLineage:
    """Records jobs of a yard, with what is known of them in the records and on S3."""

    records: Records
    contents: SourceContents

    def record(self, resource: Resource, *, now: datetime) -> None:
        """Store the record of an ended job, its artifacts and their associations. Safe to repeat."""
        job = job_of(resource)
        record = self._record_of(resource, job)
        self._store(record, now=now)
        graph = LineageGraph(self.records, job.account, job.region, now)
        self._connect(graph, record)

    def _record_of(self, resource: Resource, job: TrainingJob) -> JobRecord:
        tags = self.records.tags(job.account, job.arn)
        attempt = _telling_attempt(job)
        request = request_of(resource)
        return JobRecord(
            job=job.name,
            job_arn=job.arn,
            created_at=job.created_at,
            status=job.status,
            image=job.plan.image,
            request=request,
            inputs=attempt.inputs if attempt else (),
            code=self._code(job, attempt) if attempt else None,
            commit=tags.get(COMMIT_TAG, ""),
            repository=tags.get(REPOSITORY_TAG, ""),
            environment=next((each.environment for each in attempt.instances), "") if attempt else "",
            hyperparameters=request.get("HyperParameters", {}),
            metrics={name: summary.value for name, summary in job.metrics.items() if not summary.has_lapsed},
            outputs=tuple(self._output(job, kind) for kind in job.artifacts),
            checkpoint_uri=job.plan.checkpoint_uri,
        )

    def _code(self, job: TrainingJob, attempt: Attempt) -> SourceContent | None:
        # Not when the instances start: a store that does not answer must delay no step of a job.
        unknown: SourceContent | None = SourceContent("code", job.plan.submit_directory)
        since = attempt.placed_at
        return read_in_time(lambda: self.contents.read_code(job.plan, job.account, fetched_after=since), unknown)

    def _output(self, job: TrainingJob, kind: str) -> SourceContent:
        uri = job.artifacts[kind].uri
        read = self.contents.read_prefix if uri.endswith("/") else self.contents.read_object
        return read_in_time(lambda: read(kind, uri, job.account), SourceContent(kind, uri))

    def _store(self, record: JobRecord, *, now: datetime) -> None:
        """Store the record. One of an earlier job with the same name is replaced, and its associations are removed."""
        draft = draft_of(record)
        found = self.records.load_named(draft.key.account, draft.key.kind, [draft.key.name])
        if not found:
            self.records.create(draft, now=now)
            return
        known = job_record_of(found[0])
        if not is_of(known, created_at=record.created_at):
            self._forget_associations(draft.key.account, record.node_arn)
        self.records.apply(found[0], Change(status=record.status, body=body_of(record)), now=now)

    def _forget_associations(self, account: str, arn: str) -> None:
        for query in (AssociationQuery(account, source=arn), AssociationQuery(account, destination=arn)):
            while found := self.records.find_associations(query).associations:
                for each in found:
                    self.records.dissociate(account, each.source, each.destination)

    def _connect(self, graph: LineageGraph, record: JobRecord) -> None:
        node = GraphNode(record.node_arn, f"{JOB_TYPE_PREFIX}TrainingJob")
        for artifact in self._sources(graph, record):
            graph.associate(artifact, node, "ContributedTo")
        for output in record.outputs:
            artifact = graph.add_artifact(_OUTPUT_TYPES.get(output.name, "Output"), output.uri, *source_ids(output))
            graph.associate(node, artifact, "Produced")
        if record.checkpoint_uri:
            graph.associate(node, graph.add_artifact(_CHECKPOINT, record.checkpoint_uri), "Produced")

    def _sources(self, graph: LineageGraph, record: JobRecord) -> list[GraphNode]:
        found = [graph.add_artifact(_IMAGE, record.image)] if record.image else []
        found += [graph.add_artifact(_DATA, each.uri, *source_ids(each)) for each in record.inputs]
        if record.code is not None:
            origin = Origin(commit=record.commit, repository=record.repository)
            found.append(graph.add_artifact(_CODE, record.code.uri, *source_ids(record.code), origin=origin))
        if record.environment:
            count = len(packages_in(self.records, graph.account, record.environment))
            found.append(
                graph.add_artifact(
                    _ENVIRONMENT, environment_uri(record.environment), properties={"Packages": str(count)}
                )
            )
        return found


def source_ids(content: SourceContent) -> tuple[SourceId, ...]:
    """Return what identifies a content: the ETag of a single object, or the digest of several. Nothing if unknown.

    So the model that one job wrote and another one reads is the same artifact.
    """
    if content.etag:
        return (SourceId("S3ETag", content.etag),)
    return (SourceId("Custom", f"sha256:{content.digest}"),) if content.digest else ()


def _telling_attempt(job: TrainingJob) -> Attempt | None:
    """Return the last attempt that was started: what it was given is what the results came from."""
    return next((attempt for attempt in reversed(job.attempts) if attempt.is_started), None)
