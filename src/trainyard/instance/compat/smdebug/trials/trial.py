"""A training as its tensors tell it, live or finished, as rules and notebooks ask for it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from trainyard.formats.tensors.contract import CollectionInfo
from trainyard.formats.tensors.errors import MissingCollectionFiles as NothingThere
from trainyard.formats.tensors.trial import Trial as ToldTrial
from trainyard.formats.tensors.trial import create_trial as create_local_trial
from trainyard.foundation.sources import ByteSource

from ..core.collection import Collection
from ..core.json_config import parse_save_config_modes_dict
from ..core.logger import get_logger
from ..core.modes import ModeKeys, to_key, to_mode
from ..core.reduction_config import ReductionConfig
from ..core.save_config import SaveConfig
from ..core.tensor import StepState, Tensor
from ..core.translation import translated
from ..core.utils import is_s3
from ..exceptions import MissingCollectionFiles, SMDebugNotImplementedError

POLL_S = 2.0
END_FILE = "training_job_end.ts"  # which the original leaves when a training has ended
_PATIENCE = 10  # polls without a word

Range = tuple[int | None, int | None]


def create_trial(
    path: str | ByteSource,
    name: str | None = None,
    profiler: bool = False,
    output_dir: str = "/opt/ml/processing/outputs/",  # noqa: ARG001  # of the profiler
    **kwargs: Any,
) -> "Trial":
    """The trial in a folder or at a place of S3, in our layout or the original's. Waits until there is one.

    A source stands for what cannot be told by one path, such as the folders of all instances of a job.
    """
    if profiler:
        raise no_profiler()
    if not isinstance(path, str):
        return Trial(name or Path(path.place).name, path.place, source=path, **kwargs)
    where = path.strip()
    on_s3, bucket, prefix = is_s3(where)
    chosen = name or Path(where).name
    if on_s3:
        return S3Trial(chosen, str(bucket), str(prefix), **kwargs)
    return LocalTrial(chosen, where, **kwargs)


def no_profiler() -> SMDebugNotImplementedError:
    return SMDebugNotImplementedError(
        "There are no trials of the profiler here: this version of Trainyard has the debugger, and they come with the "
        "profiler."
    )


class Trial:
    """The tensors of a training. `parallel`, `check`, `index_mode` and `cache` of the original have no effect."""

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
        self._told = _opened(source or path, name, range_steps=_checked(range_steps), pause=pause)

    @property
    def range_steps(self) -> Range | None:
        return self._told.range_steps

    @property
    def dynamic_refresh(self) -> bool:
        return self._told.dynamic_refresh

    @dynamic_refresh.setter
    def dynamic_refresh(self, refreshes: bool) -> None:
        self._told.dynamic_refresh = refreshes

    @property
    def loaded_all_steps(self) -> bool:
        return self._told.loaded_all_steps

    @property
    def last_complete_step(self) -> int:
        return self._told.last_complete_step

    @property
    def num_workers(self) -> int:
        return self._told.num_workers

    def workers(self) -> list[str]:
        return self._told.workers()

    def refresh_data(self) -> None:
        """Read all that has come."""
        self._told.refresh()

    def maybe_refresh(self, name: str | None = None) -> None:  # noqa: ARG002  # all tensors are read at once
        self._told.maybe_refresh()

    def collections(self) -> dict[str, Collection]:
        return {name: self._collection(info) for name, info in self._told.collections().items()}

    def collection(self, coll_name: str) -> Collection:
        """A collection by its name, empty where there is none."""
        info = self._told.collection(coll_name)
        return Collection(coll_name) if info is None else self._collection(info)

    def modes(self) -> list[ModeKeys]:
        """The modes that the program named."""
        return [key for mode in self._told.modes() if (key := to_key(mode)) is not ModeKeys.GLOBAL]

    def mode(self, global_step: int) -> ModeKeys | None:
        mode = self._told.mode(global_step)
        return None if mode is None else to_key(mode)

    def mode_step(self, global_step: int) -> int | None:
        return self._told.mode_step(global_step)

    def mode_modestep(self, global_step: int) -> tuple[ModeKeys | None, int | None]:
        return self.mode(global_step), self.mode_step(global_step)

    def global_step(self, mode: ModeKeys, mode_step: int) -> int | None:
        return self._told.global_step(to_mode(mode), mode_step)

    def steps(self, mode: ModeKeys = ModeKeys.GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        return self._told.steps(to_mode(mode), show_incomplete_steps)

    def tensor_names(
        self,
        show_prefixed_tensors: bool = False,  # noqa: ARG002  # all are shown
        *,
        step: int | None = None,
        mode: ModeKeys = ModeKeys.GLOBAL,
        regex: str | list[str] | None = None,
        collection: str | Collection | None = None,
    ) -> list[str]:
        """The tensors that were saved, ever, in a step, or in a mode, all or those that a regex or a collection has."""
        if collection is not None and not isinstance(collection, str | Collection):
            raise TypeError(f"{collection!r} is no collection and no name of one.")
        name = collection.name if isinstance(collection, Collection) else collection
        with translated():
            return self._told.tensor_names(step=step, mode=to_mode(mode), regex=regex, collection=name)

    def has_tensor(self, tname: str) -> bool:
        return self._told.has_tensor(tname)

    def tensor(self, tname: str) -> Tensor:
        with translated():
            return Tensor(tname, self, self._told.tensor(tname))

    def has_passed_step(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> StepState:
        return StepState(int(self._told.has_passed_step(step, to_mode(mode))))

    def wait_for_steps(self, required_steps: list[int], mode: ModeKeys = ModeKeys.GLOBAL) -> None:
        with translated():
            self._told.wait_for_steps(required_steps, to_mode(mode))

    def inputs(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[NDArray[Any]]:
        with translated():
            return self._told.inputs(step, to_mode(mode))

    def labels(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[NDArray[Any]]:
        return self._values("labels*", step, mode)

    def predictions(self, step: int, mode: ModeKeys = ModeKeys.GLOBAL) -> list[NDArray[Any]]:
        return self._values("predictions*", step, mode)

    def _values(self, regex: str, step: int, mode: ModeKeys) -> list[NDArray[Any]]:
        return [self.tensor(name).value(step, mode) for name in self.tensor_names(step=step, mode=mode, regex=regex)]

    def _collection(self, info: CollectionInfo) -> Collection:
        """As it was asked for, with the names of the tensors that were saved of it."""
        names = set(self._told.tensor_names(collection=info.name)) | set(info.tensor_names)
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
    """A trial at a place of S3."""

    def __init__(
        self, name: str, bucket_name: str, prefix_name: str, range_steps: Range | None = None, **kwargs: Any
    ) -> None:
        self.bucket_name, self.prefix_name = bucket_name, prefix_name
        super().__init__(name, f"s3://{bucket_name}/{prefix_name}", range_steps, **kwargs)


def _opened(
    path: str | ByteSource, name: str, *, range_steps: Range | None, pause: Callable[[float], None]
) -> ToldTrial:
    """Waits until the first worker has told anything, or the training has ended without; says so when it takes long."""
    polls = 0
    while True:
        try:
            return _create(path, name, range_steps)
        except NothingThere as error:
            if isinstance(path, str) and Path(path, END_FILE).exists():
                raise MissingCollectionFiles from error
            polls += 1
            if polls % _PATIENCE == 0:
                get_logger().warning("Nothing of a trial is at %s yet; is that the right path?", path)
            pause(POLL_S)


def _create(path: str | ByteSource, name: str, range_steps: Range | None) -> ToldTrial:
    if not (isinstance(path, str) and path.startswith("s3://")):
        return create_local_trial(path, name, range_steps)
    # S3 takes the SDK, which a job has only where its environment does.
    from trainyard.trial import create_trial as create_far_trial

    return create_far_trial(path, name, range_steps)


def _checked(range_steps: Range | None) -> Range | None:
    if range_steps is not None:
        first, end = range_steps
        assert all(each is None or each >= 0 for each in range_steps), "steps are counted from 0"
        assert first is None or end is None or first < end, "the first step must come before the end"
    return range_steps
