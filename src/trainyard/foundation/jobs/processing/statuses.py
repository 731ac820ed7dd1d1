"""The statuses of a processing job: the legal transitions between them, and what each means to users.

AWS tells only the primary status of a processing job. The steps are those of a training job that nobody interrupts.
"""

from collections.abc import Mapping

from trainyard.foundation.jobs.instance_job import Lifecycle
from trainyard.foundation.jobs.status import SecondaryStatus

_S = SecondaryStatus
_ENDS = frozenset({_S.COMPLETED, _S.FAILED, _S.STOPPED, _S.MAX_RUNTIME_EXCEEDED})

# Statuses may be skipped: a job without inputs downloads nothing. Restarting is the only way back, to another attempt
# after one that could not be started or whose instances were lost.
LEGAL: Mapping[SecondaryStatus, frozenset[SecondaryStatus]] = {
    _S.PENDING: frozenset({_S.STARTING, _S.STOPPING, _S.FAILED}),
    _S.STARTING: frozenset({_S.DOWNLOADING, _S.PROCESSING, _S.UPLOADING, _S.STOPPING, _S.RESTARTING}) | _ENDS,
    _S.DOWNLOADING: frozenset({_S.PROCESSING, _S.UPLOADING, _S.STOPPING, _S.RESTARTING}) | _ENDS,
    _S.PROCESSING: frozenset({_S.UPLOADING, _S.STOPPING, _S.RESTARTING}) | _ENDS,
    _S.UPLOADING: frozenset({_S.STOPPING, _S.RESTARTING}) | _ENDS,
    _S.RESTARTING: frozenset({_S.STARTING, _S.STOPPING, _S.FAILED}),
    _S.STOPPING: _ENDS - {_S.COMPLETED},
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.STOPPED: frozenset(),
    _S.MAX_RUNTIME_EXCEEDED: frozenset(),
}

MESSAGES: Mapping[SecondaryStatus, str] = {
    _S.PENDING: "Waiting for capacity",
    _S.STARTING: "Preparing the instances for processing",
    _S.DOWNLOADING: "Downloading input data",
    _S.PROCESSING: "Processing in progress",
    _S.UPLOADING: "Uploading the outputs",
    _S.RESTARTING: "Restarting the processing job",
    _S.STOPPING: "Stopping the processing job",
    _S.COMPLETED: "Processing job completed",
    _S.FAILED: "Processing job failed",
    _S.STOPPED: "Processing job stopped",
    _S.MAX_RUNTIME_EXCEEDED: "Processing job runtime exceeded MaxRuntimeInSeconds provided",
}

LIFECYCLE = Lifecycle(
    "processing job", LEGAL, MESSAGES, running=_S.PROCESSING, lost_advice="Create the job again under another name"
)
