"""The statuses of a training job: the legal transitions between them, and the messages of AWS."""

from collections.abc import Mapping

from trainyard.foundation.jobs.instance_job import Lifecycle
from trainyard.foundation.jobs.status import SecondaryStatus

# Stop reasons: the job waited too long for capacity, or waited and ran too long together.
MAX_PENDING, MAX_WAIT = "max_pending", "max_wait"

_S = SecondaryStatus
_ENDS = frozenset({_S.COMPLETED, _S.FAILED, _S.STOPPED, _S.MAX_RUNTIME_EXCEEDED, _S.MAX_WAIT_TIME_EXCEEDED})
_RESTARTS = frozenset({_S.INTERRUPTED, _S.RESTARTING})

# Statuses may be skipped: a job without channels downloads nothing. A job that was asked to stop cannot become
# Completed, which would contradict its primary status Stopping. Restarting is the only way back: to Starting, with
# another attempt, after an attempt whose instances were lost or, via Interrupted, one that was interrupted.
LEGAL: Mapping[SecondaryStatus, frozenset[SecondaryStatus]] = {
    _S.PENDING: frozenset({_S.STARTING, _S.STOPPING, _S.FAILED}),
    _S.STARTING: frozenset({_S.DOWNLOADING, _S.TRAINING, _S.UPLOADING, _S.STOPPING}) | _RESTARTS | _ENDS,
    _S.DOWNLOADING: frozenset({_S.TRAINING, _S.UPLOADING, _S.STOPPING}) | _RESTARTS | _ENDS,
    _S.TRAINING: frozenset({_S.UPLOADING, _S.STOPPING}) | _RESTARTS | _ENDS,
    _S.UPLOADING: frozenset({_S.STOPPING}) | _RESTARTS | _ENDS,
    _S.INTERRUPTED: frozenset({_S.RESTARTING, _S.STOPPING, _S.FAILED}),
    _S.RESTARTING: frozenset({_S.STARTING, _S.INTERRUPTED, _S.STOPPING, _S.FAILED}),
    _S.STOPPING: _ENDS - {_S.COMPLETED},
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.STOPPED: frozenset(),
    _S.MAX_RUNTIME_EXCEEDED: frozenset(),
    _S.MAX_WAIT_TIME_EXCEEDED: frozenset(),
}

# The messages of AWS, which users of its SDK know.
MESSAGES: Mapping[SecondaryStatus, str] = {
    _S.PENDING: "Waiting for capacity",
    _S.STARTING: "Preparing the instances for training",
    _S.DOWNLOADING: "Downloading input data",
    _S.TRAINING: "Training image download completed. Training in progress.",
    _S.UPLOADING: "Uploading generated training model",
    _S.INTERRUPTED: "The job stopped because the managed spot training instances were interrupted.",
    _S.RESTARTING: "Restarting the training job",
    _S.STOPPING: "Stopping the training job",
    _S.COMPLETED: "Training job completed",
    _S.FAILED: "Training job failed",
    _S.STOPPED: "Training job stopped",
    _S.MAX_RUNTIME_EXCEEDED: "Training job runtime exceeded MaxRuntimeInSeconds provided",
    _S.MAX_WAIT_TIME_EXCEEDED: "The job stopped because it exceeded the maximum allowed wait time.",
}

LIFECYCLE = Lifecycle(
    "training job",
    LEGAL,
    MESSAGES,
    running=_S.TRAINING,
    lost_advice="Give the job a RetryStrategy, so that it is started again",
    stopped_for={MAX_WAIT: _S.MAX_WAIT_TIME_EXCEEDED},
)
