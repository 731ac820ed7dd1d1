"""Functions that run as jobs: decorate one with `remote`, or submit calls to a `RemoteExecutor`.

    from trainyard.remote_function import remote

    @remote(instance_type="ml.m5.large")
    def train(rate):
        ...
        return accuracy

    print(train(0.1))

The function and its arguments are pickled and run by a job with the same Python version; the call returns what the
function returns, or raises what it raises. Pickling needs cloudpickle: `pip install 'trainyard[remote]'`.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from trainyard._sdk.remote.call import RemoteCall, require_supported, start_call
from trainyard._sdk.remote.future import Future
from trainyard.foundation.errors import InvalidRequest
from trainyard.session import Session

__all__ = ["Future", "RemoteExecutor", "get_future", "list_futures", "remote"]

# The attribute of a decorated function with the function itself.
_UNDECORATED = "trainyard_undecorated"

Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def remote(_func: Function) -> Function: ...


@overload
def remote(_func: None = None, **options: Any) -> Callable[[Function], Function]: ...


def remote(_func: Function | None = None, **options: Any) -> Function | Callable[[Function], Function]:
    """Make a function run as a job whenever it is called. The call waits and shows the log of the job.

    Args:
        _func: The function, if the decorator is used without arguments.
        **options: The options of `RemoteExecutor`, apart from `max_parallel_jobs`.

    Raises:
        InvalidRequest: An option has no effect here.
        TypeError: For an option that does not exist.
    """
    require_supported("remote", options)

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            call = RemoteCall(function, args, kwargs)
            return start_call(call, options).result(logs=True)

        setattr(run, _UNDECORATED, function)
        # functools.wraps keeps the signature.
        return run  # type: ignore[return-value]

    return decorate if _func is None else decorate(_func)


class RemoteExecutor:
    """Runs calls of functions as jobs, several at a time.

    Args:
        max_parallel_jobs: How many jobs may run at a time.
        **options: `dependencies` (path of a requirements.txt), `environment_variables`, `image_uri`,
            `include_local_workdir` (whether to send the Python files below the current folder), `instance_count`,
            `instance_type`, `job_name_prefix`, `keep_alive_period_in_seconds`, `max_retry_attempts`,
            `max_runtime_in_seconds`, `max_wait_time_in_seconds`, `role`, `s3_root_uri`, `s3_kms_key`,
            `sagemaker_session`, `security_group_ids`, `subnets`, `tags`, `use_spot_instances`, `volume_size`,
            `volume_kms_key`, `encrypt_inter_container_traffic` and `disable_output_compression`.

    Raises:
        InvalidRequest: An option has no effect here.
        TypeError: For an option that does not exist.
    """

    def __init__(self, *, max_parallel_jobs: int = 1, **options: Any) -> None:
        require_supported("RemoteExecutor", options)
        if max_parallel_jobs < 1:
            raise InvalidRequest(f"max_parallel_jobs is {max_parallel_jobs}; at least one job must run.")
        self._options = options
        self._threads = ThreadPoolExecutor(max_parallel_jobs, thread_name_prefix="trainyard-remote")

    def submit(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
        """Start a call as a job, as soon as fewer than `max_parallel_jobs` run, and return its future.

        Args:
            func: The function.
            *args: Its positional arguments.
            **kwargs: Its keyword arguments.
        """
        # A job that called the decorated function would start another job.
        call = RemoteCall(getattr(func, _UNDECORATED, func), args, kwargs).freeze()
        future = Future()

        def run() -> None:
            if future.begin(lambda: start_call(call, self._options)):
                future.wait()

        self._threads.submit(run)
        return future

    def map(self, func: Callable[..., Any], *iterables: Iterable[Any]) -> list[Any]:
        """Run a function with the elements of some sequences, and return the results in order.

        Args:
            func: The function.
            *iterables: For each argument, its values.
        """
        return [future.result() for future in [self.submit(func, *args) for args in zip(*iterables, strict=False)]]

    def shutdown(self) -> None:
        """Wait until all jobs have ended."""
        self._threads.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()


def get_future(job_name: str, sagemaker_session: Session | None = None) -> Future:
    """Return the future of a call that another program has started.

    Args:
        job_name: Name of the job.
        sagemaker_session: The session to use. Default: a new one.

    Raises:
        InvalidRequest: The job does not run a function.
    """
    return Future.of_job(job_name, sagemaker_session or Session())


def list_futures(job_name_prefix: str, sagemaker_session: Session | None = None) -> Iterator[Future]:
    """Iterate over the futures of all calls whose jobs have a name prefix, newest first.

    Args:
        job_name_prefix: The prefix.
        sagemaker_session: The session to use. Default: a new one.
    """
    session = sagemaker_session or Session()
    request: dict[str, Any] = {"NameContains": job_name_prefix, "SortBy": "CreationTime", "SortOrder": "Descending"}
    while True:
        page = session.api.call("sagemaker", "ListTrainingJobs", **request)
        for summary in page["TrainingJobSummaries"]:
            if summary["TrainingJobName"].startswith(f"{job_name_prefix}-"):
                yield Future.of_job(summary["TrainingJobName"], session)
        if "NextToken" not in page:
            return
        request["NextToken"] = page["NextToken"]
