"""The saved tensors of a running or finished training, for rules and notebooks."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from trainyard.formats.tensors.contract import CollectionInfo
from trainyard.formats.tensors.errors import MissingCollectionFiles as NoTrial
from trainyard.formats.tensors.trials.trial import Trial as NativeTrial
from trainyard.formats.tensors.trials.trial import create_trial as create_local_trial
from trainyard.foundation.sources import ByteSource

from ..core.collection import Collection
from ..core.json_config import parse_save_config_modes_dict
from ..core.logger import get_logger
from ..core.modes import ModeKeys, to_key, to_mode
from ..core.reduction_config import ReductionConfig
from ..core.save_config import SaveConfig
from ..core.tensor import StepState, Tensor, translate_errors
from ..core.utils import is_s3
from ..exceptions import MissingCollectionFiles, SMDebugNotImplementedError

POLL_INTERVAL_S = 2.0
# smdebug writes it when a training has ended.
END_FILE = "training_job_end.ts"
_POLLS_PER_WARNING = 10

Range = tuple[int | None, int | None]


def create_trial(
    path: str | ByteSource,
    name: str | None = None,
    profiler: bool = False,
    output_dir: str = "/opt/ml/processing/outputs/",  # noqa: ARG001
    **kwargs: Any,
) -> "Trial":
    """Open the trial in a folder or on S3, in our layout or smdebug's. Waits until there is one.

    Pass a source if one path is not enough, as for the folders of all instances of a job. `output_dir` has no effect:
    the profiler uses it.
    """
    if profiler:
        raise profiler_error()
    if not isinstance(path, str):
        return Trial(name or Path(path.place).name, path.place, source=path, **kwargs)
    where = path.strip()
    on_s3, bucket, prefix = is_s3(where)
    trial_name = name or Path(where).name
    if on_s3:
        return S3Trial(trial_name, str(bucket), str(prefix), **kwargs)
    return LocalTrial(trial_name, where, **kwargs)


def profiler_error() -> SMDebugNotImplementedError:
    return SMDebugNotImplementedError(
        "Profiler trials are not available: read the profile of a job with smdebug.profiler, in a notebook."
    )


class Trial:
    """The saved tensors of a training. smdebug's `parallel`, `check`, `index_mode` and `cache` have no effect."""

    def __init__(
        self,
        name: str,
        path: str,
        range_steps: Range | None = None,
        parallel: bool = True,
        check: bool = False,
        index_mode: bool = True,
        cache: bool = False,
        pause: Callable[[float], None] = time.sleep,
        source: ByteSource | None = None,
    ) -> None:
        self.name, self.path, self.trial_dir = name, path, path
        self.parallel, self.check, self.index_mode, self.cache = parallel, check, index_mode, cache
        self.logger = get_logger()
        self._trial = _open(source or path, name, range_steps=_check_range(range_steps), pause=pause)

    @property
    def range_steps(self) -> Range | None:
        return self._trial.range_steps

    @property
    def dynamic_refresh(self) -> bool:
        return self._trial.dynamic_refresh

    @dynamic_refresh.setter
    def dynamic_refresh(self, refreshes: bool) -> None:
        self._trial.dynamic_refresh = refreshes

    @property
    def loaded_all_steps(self) -> bool:
        return self._trial.loaded_all_steps

    @property
    def last_complete_step(self) -> int:
        return self._trial.last_complete_step

    @property
    def num_workers(self) -> int:
        return self._trial.num_workers

    def workers(self) -> list[str]:
        return self._trial.workers()

    def refresh_data(self) -> None:
        """Read everything that has arrived."""
        self._trial.refresh()

    def maybe_refresh(self, name: str | None = None) -> None:  # noqa: ARG002
        self._trial.maybe_refresh()

    def collections(self) -> dict[str, Collection]:
        return {name: self._collection(info) for name, info in self._trial.collections().items()}

    def collection(self, coll_name: str) -> Collection:
        """Return a collection by name, empty if there is none."""
        info = self._trial.collection(coll_name)
        return Collection(coll_name) if info is None else self._collection(info)

    def modes(self) -> list[ModeKeys]:
        """Return the modes that the program set."""
        return [key for mode in self._trial.modes() if (key := to_key(mode)) is not ModeKeys.GLOBAL]

    def mode(self, global_step: int) -> ModeKeys | None:
        mode = self._trial.mode(global_step)
        return None if mode is None else to_key(mode)

    def mode_step(self, global_step: int) -> int | None:
        return self._trial.mode_step(global_step)

    def mode_modestep(self, global_step: int) -> tuple[ModeKeys | None, int | None]:
        return self.mode(global_step), self.mode_step(global_step)

    def global_step(self, mode: ModeKeys, mode_step: int) -> int | None:
        return self._trial.global_step(to_mode(mode), mode_step)

    def steps(self, mode: ModeKeys = ModeKeys.GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        return self._trial.steps(to_mode(mode), show_incomplete_steps)

    def tensor_names(
        self,
        show_prefixed_tensors: bool = False,  # noqa: ARG002
        *,
        step: int | None = None,
        mode: ModeKeys = ModeKeys.GLOBAL,
        regex: str | list[str] | None = None,
        collection: str | Collection | None = None,
    ) -> list[str]:
        """Return the names of saved tensors, optionally of one step, mode, regex or collection."""
        if collection is not None and not isinstance(collection, str | Collection):
            raise TypeError(f"{collection!r} is neither a collection nor the name of one.")
        name = collection.name if isinstance(collection, Collection) else collection
        with translate_errors():
            return self._trial.tensor_names(step=step, mode=to_mode(mode), regex=regex, collection=name)

    def has_tensor(self, tname: str) -> bool:
        return self._trial.has_tensor(tname)

    def tensor(self, tname: str) -> Tensor:
        with translate_errors():
            return Tensor(tname, self, self._trial.tensor(tname))

    def has_passed_step(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> StepState:
        return StepState(int(self._trial.has_passed_step(step, to_mode(mode))))

    def wait_for_steps(self, required_steps: list[int], mode: ModeKeys = ModeKeys.GLOBAL) -> None:
        with translate_errors():
            self._trial.wait_for_steps(required_steps, to_mode(mode))

    def inputs(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[NDArray[Any]]:
        with translate_errors():
            return self._trial.inputs(step, to_mode(mode))

    def labels(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[NDArray[Any]]:
        return self._values("labels*", step, mode)

    def predictions(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[NDArray[Any]]:
        return self._values("predictions*", step, mode)

    def _values(self, regex: str, step: int, mode: ModeKeys) -> list[NDArray[Any]]:
        return [self.tensor(name).value(step, mode) for name in self.tensor_names(step=step, mode=mode, regex=regex)]

    def _collection(self, info: CollectionInfo) -> Collection:
        """Return a collection as it was configured, with the names of its saved tensors."""
        names = set(self._trial.tensor_names(collection=info.name)) | set(info.tensor_names)
        modes = parse_save_config_modes_dict(info.parameters)
        return Collection(
            info.name,
            list(info.include_regex),
            names,
            ReductionConfig.from_dict(info.parameters) if "reductions" in info.parameters else None,
            SaveConfig.from_dict(modes) if any(modes.values()) else None,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trial) and (self.name, self.path) == (other.name, other.path)

    def __hash__(self) -> int:
        return hash((self.name, self.path))

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.name} at {self.path}: steps {self.steps()}, tensors {self.tensor_names()}>"
        )


class LocalTrial(Trial):
    """A trial in a folder."""

    def __init__(self, name: str, dirname: str, range_steps: Range | None = None, **kwargs: Any) -> None:
        super().__init__(name, str(Path(dirname).expanduser()), range_steps, **kwargs)


class S3Trial(Trial):
    """A trial on S3."""

    def __init__(
        self, name: str, bucket_name: str, prefix_name: str, range_steps: Range | None = None, **kwargs: Any
    ) -> None:
        self.bucket_name, self.prefix_name = bucket_name, prefix_name
        super().__init__(name, f"s3://{bucket_name}/{prefix_name}", range_steps, **kwargs)


def _open(
    path: str | ByteSource, name: str, *, range_steps: Range | None, pause: Callable[[float], None]
) -> NativeTrial:
    """Wait until the first worker has written something, or the training has ended; log a warning if it takes long."""
    polls = 0
    while True:
        try:
            return _create(path, name, range_steps)
        except NoTrial as error:
            if isinstance(path, str) and Path(path, END_FILE).exists():
                raise MissingCollectionFiles from error
            polls += 1
            if polls % _POLLS_PER_WARNING == 0:
                get_logger().warning("There is no trial at %s yet. Is this the right path?", path)
            pause(POLL_INTERVAL_S)


def _create(path: str | ByteSource, name: str, range_steps: Range | None) -> NativeTrial:
    if not (isinstance(path, str) and path.startswith("s3://")):
        return create_local_trial(path, name, range_steps)
    # S3 needs the SDK, which a job has only if its environment does.
    from trainyard.trial import create_trial as create_s3_trial

    return create_s3_trial(path, name, range_steps)


def _check_range(range_steps: Range | None) -> Range | None:
    if range_steps is not None:
        first, end = range_steps
        assert all(each is None or each >= 0 for each in range_steps), "steps are counted from 0"
        assert first is None or end is None or first < end, "the first step must come before the end"
    return range_steps
