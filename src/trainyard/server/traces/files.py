"""The traces that a job has stored: those of the profiler, and those that the program wrote itself."""

import hashlib
import re
from collections.abc import Sequence

from trainyard.foundation.errors import NotFound
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.locations import Location
from trainyard.objects.contract import ObjectStore, ObjectSummary
from trainyard.server.control.profiling.trace_copies import find_traces
from trainyard.server.traces.contract import TraceFile

# As the hook names them: detailed_profiling/<hour>/<step>/<instance>-<worker>.<start>.pt.trace.json.gz
_OF_HOOK = re.compile(r"/detailed_profiling/[^/]+/(\d{1,15})/([^/]+)-(worker_\d+(?:-\d+)?)\.[^/]*$")
_OF_PROGRAM = re.compile(r"/user/([^/]+)/")
# In the names of files of torch's own handler: the rank, or the host and the process.
_RANK = re.compile(r"rank[-_]?(\d{1,6})", re.IGNORECASE)


def list_trace_files(objects: ObjectStore, job: TrainingJob) -> Sequence[TraceFile]:
    """Return the traces of a job, the newest first."""
    return [_trace_file(where, summary) for where, summary in find_traces(objects, job)]


def load_trace_file(objects: ObjectStore, job: TrainingJob, trace_id: str) -> TraceFile:
    """Return a trace by its id. NotFound if the job has no such trace."""
    found = next((each for each in list_trace_files(objects, job) if each.id == trace_id), None)
    if found is None:
        raise NotFound("trace", trace_id)
    return found


def _trace_file(where: Location, summary: ObjectSummary) -> TraceFile:
    digest = hashlib.sha256(f"{where.bucket.account} {where} {summary.etag}".encode()).hexdigest()[:32]
    of_hook, of_program = _OF_HOOK.search(where.key), _OF_PROGRAM.search(where.key)
    rank = _RANK.search(where.key.rpartition("/")[2])
    worker = of_hook[3] if of_hook else f"worker_{int(rank[1])}" if rank else ""
    return TraceFile(
        id=digest,
        uri=str(where),
        size_bytes=summary.size,
        modified_at=summary.modified_at,
        instance=of_hook[2] if of_hook else of_program[1] if of_program else "",
        worker=worker,
        step=int(of_hook[1]) if of_hook else None,
        is_of_program=of_hook is None,
    )
