"""A call of a function, pickled and started as a job."""

import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainyard._sdk.job_names import as_base
from trainyard._sdk.remote.future import RunningCall
from trainyard._sdk.remote.program import CALL, FOLDER, KEY_VARIABLE, PYTHON_VARIABLE
from trainyard._sdk.storage.transfers import join_key
from trainyard.estimator import Estimator
from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.session import Session

# The name stands for the yard's own Python, whatever version is asked for.
_IMAGE = "pytorch-training:latest"
_PROGRAM = "program.py"

# The options of remote functions, by the options of an estimator that have the same meaning.
_SAME = {
    "instance_count": "instance_count",
    "instance_type": "instance_type",
    "keep_alive_period_in_seconds": "keep_alive_period_in_seconds",
    "max_runtime_in_seconds": "max_run",
    "max_wait_time_in_seconds": "max_wait",
    "max_retry_attempts": "max_retry_attempts",
    "role": "role",
    "s3_kms_key": "output_kms_key",
    "sagemaker_session": "sagemaker_session",
    "security_group_ids": "security_group_ids",
    "subnets": "subnets",
    "use_spot_instances": "use_spot_instances",
    "volume_size": "volume_size",
    "volume_kms_key": "volume_kms_key",
    "encrypt_inter_container_traffic": "encrypt_inter_container_traffic",
    "disable_output_compression": "disable_output_compression",
}
_OTHER = (
    "dependencies",
    "environment_variables",
    "image_uri",
    "include_local_workdir",
    "job_name_prefix",
    "s3_root_uri",
    "tags",
)
# What the sagemaker SDK has besides, and what to do instead.
_UNSUPPORTED = {
    "pre_execution_commands": "call subprocess.run in the function",
    "pre_execution_script": "call subprocess.run in the function",
    "custom_file_filter": "leave out include_local_workdir and import what the function needs in it",
    "job_conda_env": "map an image to the environment with `trainyard images map`, and pass it as image_uri",
    "spark_config": "Spark is not available",
    "use_torchrun": "train with trainyard.pytorch.PyTorch and a distribution",
    "use_mpirun": "train with trainyard.pytorch.PyTorch and a distribution",
    "nproc_per_node": "train with trainyard.pytorch.PyTorch and a distribution",
}


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """A function with its arguments; `pickle` has them in the form in which they are sent."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    pickle: bytes = b""

    def freeze(self) -> "RemoteCall":
        """Return the call with its arguments as they are now. Raises InvalidRequest if they cannot be pickled."""
        if self.pickle:
            return self
        cloudpickle = _cloudpickle()
        try:
            sent = cloudpickle.dumps((self.function, self.args, dict(self.kwargs)))
        except Exception as error:
            raise InvalidRequest(f"The call of {self.name} cannot be pickled, so no job can run it: {error}") from error
        return replace(self, pickle=sent)

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)


def require_supported(called: str, options: Mapping[str, Any]) -> None:
    """Raise InvalidRequest for an option that has no effect here, and TypeError for one that does not exist."""
    for name, value in options.items():
        if name in _UNSUPPORTED and value:
            raise InvalidRequest(f"{name} has no effect in Trainyard's {called}; {_UNSUPPORTED[name]}.")
        if name not in (*_SAME, *_OTHER, *_UNSUPPORTED):
            raise TypeError(f'{called}() got an unexpected keyword argument "{name}"')


def start_call(call: RemoteCall, options: Mapping[str, Any]) -> RunningCall:
    """Create the job of a call, without waiting for it."""
    call = call.freeze()
    session = options.get("sagemaker_session") or Session()
    key = secrets.token_hex(32)
    results = _results_location(session, options)
    with tempfile.TemporaryDirectory(prefix="trainyard-call-") as folder:
        _write_source(Path(folder), call, options)
        estimator = Estimator(
            options.get("image_uri") or _IMAGE,
            entry_point=_PROGRAM,
            source_dir=folder,
            checkpoint_s3_uri=results,
            checkpoint_local_path=FOLDER,
            environment={
                **(options.get("environment_variables") or {}),
                KEY_VARIABLE: key,
                PYTHON_VARIABLE: "{}.{}".format(*sys.version_info[:2]),
            },
            base_job_name=as_base(options.get("job_name_prefix") or call.name),
            tags=_tags(options),
            **_estimator_options(options, session),
        )
        estimator.fit(wait=False)
    assert estimator.latest_training_job is not None, "fit has created a job"
    return RunningCall(session, estimator.latest_training_job.name, results, key)


def _results_location(session: Session, options: Mapping[str, Any]) -> str:
    """Return where the result is stored: a prefix of the call's own, because the name of its job is not known yet."""
    root = options.get("s3_root_uri") or (
        f"s3://{join_key(session.default_bucket(), session.default_bucket_prefix or '')}"
    )
    return f"{root.rstrip('/')}/remote-functions/{secrets.token_hex(16)}"


def _estimator_options(options: Mapping[str, Any], session: Session) -> dict[str, Any]:
    given = {_SAME[name]: value for name, value in options.items() if name in _SAME and value is not None}
    given |= {"sagemaker_session": session}
    given.setdefault("instance_type", "local")
    # The sagemaker SDK means none by 0.
    if not given.get("keep_alive_period_in_seconds"):
        given.pop("keep_alive_period_in_seconds", None)
    return given


def _tags(options: Mapping[str, Any]) -> list[Mapping[str, str]] | None:
    """Return the tags; the sagemaker SDK has them as pairs."""
    tags = options.get("tags")
    return [{"Key": each[0], "Value": each[1]} if isinstance(each, tuple) else each for each in tags] if tags else None


def _write_source(folder: Path, call: RemoteCall, options: Mapping[str, Any]) -> None:
    """Write the source of the job: its script, the call, cloudpickle, and what the function needs."""
    shutil.copyfile(Path(__file__).with_name(_PROGRAM), folder / _PROGRAM)
    (folder / CALL).write_bytes(call.pickle)
    library = Path(_cloudpickle().__file__).parent
    shutil.copytree(library, folder / "libraries" / library.name, ignore=shutil.ignore_patterns("__pycache__"))
    requirements = options.get("dependencies")
    if requirements:
        if not Path(requirements).is_file():
            raise InvalidRequest(f'dependencies is "{requirements}", which is not the path of a requirements.txt.')
        shutil.copyfile(requirements, folder / "requirements.txt")
    if options.get("include_local_workdir"):
        _copy_workdir(Path.cwd(), folder / "workdir")


def _copy_workdir(source: Path, target: Path) -> None:
    """Copy the Python files below a folder, as the sagemaker SDK does. Hidden folders are left out."""
    for path in sorted(source.rglob("*.py")):
        inside = path.relative_to(source)
        if path.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in inside.parts):
            (target / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / inside)


def _cloudpickle() -> Any:
    try:
        import cloudpickle
    except ImportError as error:
        raise Unavailable(
            "Remote functions need cloudpickle, which is not installed: pip install 'trainyard[remote]'."
        ) from error
    return cloudpickle
