"""The base of all frameworks' hooks: what to save, and when."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from trainyard.formats.tensors.contract import Kind
from trainyard.formats.tensors.tensorboard_summaries import TensorBoardSubscriber
from trainyard.instance.hook import process
from trainyard.instance.hook.configuration import DEFAULT_BUDGET
from trainyard.instance.hook.contract import HookContext
from trainyard.instance.hook.recording import SCALAR_PREFIX, HookRecording

from ..exceptions import InvalidCollectionConfiguration, SMDebugTypeError, SMDebugValueError
from .collection import Collection, CollectionKeys
from .collection_manager import CollectionManager
from .config_constants import DEFAULT_SAVED_COLLECTIONS, DEFAULT_WORKER_NAME
from .hook_settings import ScriptHookSettings
from .hook_utils import get_tensorboard_dir, verify_and_get_out_dir
from .json_config import create_hook_from_json_config
from .logger import get_logger
from .modes import ALLOWED_MODE_NAMES, ModeKeys, to_mode
from .reduction_config import ReductionConfig
from .save_config import SaveConfig, SaveConfigLike
from .singleton_utils import set_hook
from .utils import flatten, make_numpy_array, match_inc

_NOT_IN_EVALUATION = frozenset({CollectionKeys.GRADIENTS, CollectionKeys.OPTIMIZER_VARIABLES})


class BaseHook:
    """Saves tensors of a training. Collections can be changed until the first step.

    Once the training runs, a failure is noted and ends the saving; it never reaches the training.
    """

    # Filled by the framework, so they need no regex.
    default_collections: ClassVar[set[str]]
    # Always saved.
    default_include_collections: ClassVar[list[str]]
    # For what a configuration file leaves out.
    default_values: ClassVar[Mapping[str, Any]] = {}
    manager_class: ClassVar[type[CollectionManager]]

    def __init__(
        self,
        out_dir: str | None = None,
        export_tensorboard: bool = False,
        tensorboard_dir: str | None = None,
        dry_run: bool = False,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfigLike = None,
        include_regex: list[str] | None = None,
        include_collections: list[str] | None = None,
        save_all: bool = False,
        include_workers: str = "one",
    ) -> None:
        self.out_dir = verify_and_get_out_dir(out_dir)
        self.tensorboard_dir = get_tensorboard_dir(export_tensorboard, tensorboard_dir, self.out_dir)
        self.dry_run = dry_run
        self.save_all_workers = include_workers == "all"
        self.save_config = SaveConfig.parse(save_config if save_config is not None else self._default_save_config())
        self.reduction_config = reduction_config or ReductionConfig(save_raw_tensor=True)
        self.collection_manager = self.manager_class(create_default=True)
        self.include_collections = sorted({*flatten(include_collections or []), *self.default_include_collections})
        self.include_regex, self.save_all = include_regex, save_all
        self._include(CollectionKeys.DEFAULT, include_regex)
        self._include(CollectionKeys.ALL, [".*"] if save_all else None)
        self.logger = get_logger()
        self.chief_worker = DEFAULT_WORKER_NAME
        self.mode = ModeKeys.GLOBAL
        self.step = -1
        self.mode_steps = {ModeKeys.GLOBAL: -1}
        self.prepared_collections = False
        self.is_of_file = False
        self.overhead_budget: float | None = DEFAULT_BUDGET
        self._recording: HookRecording | None = None
        # Saved by the program between two steps.
        self._scalars: dict[str, float] = {}
        self._tensors: dict[str, NDArray[Any]] = {}
        set_hook(self)

    @classmethod
    def create_from_json_file(cls, json_file_path: str | None = None) -> Self:
        """Create the hook that a job's configuration describes. Raises FileNotFoundError if there is none."""
        return create_hook_from_json_config(cls, json_file_path, cls.default_values)

    @classmethod
    def hook_from_config(cls, json_config_path: str | None = None) -> Self:
        return cls.create_from_json_file(json_config_path)

    @property
    def worker(self) -> str:
        return self._recording.worker.name if self._recording else self.chief_worker

    def set_mode(self, mode: ModeKeys) -> None:
        """Set the mode from now on. Each mode counts its own steps."""
        if not isinstance(mode, ModeKeys):
            raise SMDebugValueError(f"{mode!r} is not a mode; the modes are {', '.join(ALLOWED_MODE_NAMES)}.")
        self.mode = mode
        self.mode_steps.setdefault(mode, -1)

    def get_collection(self, name: str, create: bool = True) -> Collection:
        return self.collection_manager.get(name, create=create)

    def get_collections(self) -> dict[str, Collection]:
        return self.collection_manager.get_collections()

    def add_collection(self, collection: Collection) -> None:
        if not isinstance(collection, Collection):
            raise SMDebugTypeError(f"{collection!r} is not a Collection.")
        self.collection_manager.add(collection)

    def save_scalar(
        self,
        name: str,
        value: Any,
        sm_metric: bool = False,  # noqa: ARG002
        timestamp: float | None = None,  # noqa: ARG002
    ) -> None:
        """Save a number with this step, or with the first one before it has begun, whatever the configuration says.

        `sm_metric` has no effect, as a job's metrics come from its log; nor has `timestamp`, as the step has its own.
        """
        array = self._make_numpy_array(value)
        if array.size != 1:
            raise SMDebugTypeError(f"The scalar {name} has {array.size} elements; a scalar must have one.")
        self._scalars[f"{SCALAR_PREFIX}{name}"] = float(array.reshape(-1)[0])
        self._observe_scalars()

    def save_tensor(
        self, tensor_name: str, tensor_value: Any, collections_to_write: str | list[str] = CollectionKeys.DEFAULT
    ) -> None:
        """Add a tensor to these collections and save it with the current step, whatever the configuration says."""
        try:
            array = self._make_numpy_array(tensor_value).copy()
        except TypeError:
            self.logger.warning("The tensor %s is left out: it cannot be converted to an array.", tensor_name)
            return
        for name in [collections_to_write] if isinstance(collections_to_write, str) else collections_to_write:
            self.get_collection(name).add_tensor_name(tensor_name)
            self._add_to_selection(name, tensor_name)
        self._tensors[tensor_name] = array

    def has_default_hook_configuration(self, default_saved_collections: list[str] = DEFAULT_SAVED_COLLECTIONS) -> bool:
        return {collection.name for collection in self._saved_collections()} == set(default_saved_collections)

    def has_default_configuration(self) -> bool:
        return self.has_default_hook_configuration()

    def should_save_tensor_or_collection(self, tensor_name: str, collection_name: str) -> bool:
        """Whether this step saves anything of a tensor or of a collection."""
        due = [each for each in self._saved_collections() if self._is_due(each)]
        if any(each.name == collection_name for each in due):
            return True
        return any(match_inc(tensor_name, each.include_regex) for each in due)

    def export_collections(self) -> None:
        """Do nothing: collections are written with the first step."""

    def close(self) -> None:
        """Write the remaining steps and mark the end."""
        process.release(self)
        if self._recording is not None:
            self._observe_tensors()
            self._finish_step(self._recording)
            self._recording.close()

    def forget(self) -> None:
        """Stop without writing, in a forked child: its parent continues to save."""
        if self._recording is not None:
            self._recording.forget()

    def _begin_step(self) -> HookRecording | None:
        """Begin the next step of the mode and return the recording, or None if nothing is saved at all."""
        if not self.prepared_collections:
            self._prepare()
        self.step += 1
        self.mode_steps[self.mode] += 1
        if self.mode is not ModeKeys.GLOBAL:
            self.mode_steps[ModeKeys.GLOBAL] = self.step
        recording = self._recording
        if recording is None:
            return None
        self._finish_step(recording)
        recording.begin(to_mode(self.mode))
        step = recording.open_step
        if step is not None and self.mode in (ModeKeys.EVAL, ModeKeys.PREDICT):
            step.due -= _NOT_IN_EVALUATION
        self._observe_scalars()
        return recording

    def _finish_step(self, recording: HookRecording) -> None:
        recording.finish()

    def _prepare(self) -> None:
        """Fix the collections and start the recording."""
        for collection in list(self.get_collections().values()):
            is_known = collection.name in self.default_collections
            if not is_known and not collection.include_regex and not collection.tensor_names:
                self._reject_collection(collection.name)
        self.prepared_collections = True
        if not self.dry_run:
            self._recording = HookRecording(self._settings().hook_config(), self._full_context())
            # From now on, `close` closes the recording, after finishing the open step.
            process.release(self._recording)
            process.bind(self)

    def _reject_collection(self, collection: str) -> None:
        """Raise for a collection without tensors at the first step of a script; skip it if it is from a job's file."""
        error = InvalidCollectionConfiguration(collection)
        if not self.is_of_file:
            raise error
        self.logger.warning("%s It is left out.", error)
        del self.get_collections()[collection]

    def _full_context(self) -> HookContext:
        """Return the hook's context, with TensorBoard if the script asks for it and the job does not provide it."""
        context = self._context()
        has_tensorboard = any(isinstance(each, TensorBoardSubscriber) for each in context.subscribers)
        if self.tensorboard_dir is None or has_tensorboard:
            return context
        return replace(context, subscribers=(*context.subscribers, TensorBoardSubscriber(Path(self.tensorboard_dir))))

    def _context(self) -> HookContext:
        return HookContext()

    def _settings(self) -> ScriptHookSettings:
        saved = self._saved_collections()
        return ScriptHookSettings(
            folder=Path(self.out_dir),
            collections=tuple(self.get_collections().values()),
            included=frozenset(collection.name for collection in saved),
            save_config=self.save_config,
            reduction_config=self.reduction_config,
            is_of_all_workers=self.save_all_workers,
            has_histograms=self.tensorboard_dir is not None,
            budget=self.overhead_budget,
        )

    def _saved_collections(self) -> list[Collection]:
        everything = CollectionKeys.ALL in self.include_collections
        return [each for each in self.get_collections().values() if everything or each.name in self.include_collections]

    def _is_due(self, collection: Collection) -> bool:
        config = replace(collection.save_config) if collection.save_config else self.save_config
        config.merge_default_save_config(self.save_config)
        if self.mode in (ModeKeys.EVAL, ModeKeys.PREDICT) and collection.name in _NOT_IN_EVALUATION:
            return False
        return config.should_save_step(self.mode, self.mode_steps[self.mode])

    def _add_to_selection(self, collection: str, tensor: str) -> None:
        """Add a tensor to a collection after the first step."""
        if self._recording is None:
            return
        known = self._recording.selection.collections
        if collection in known:
            names = known[collection].tensor_names | {tensor}
            known[collection] = replace(known[collection], tensor_names=names)

    def _observe_scalars(self) -> None:
        """Observe the scalars that the program has saved, if a step is open."""
        recording = self._recording
        if recording is not None and recording.open_step is not None:
            for name, value in self._scalars.items():
                recording.observe_scalar(name, value)
            self._scalars.clear()

    def _observe_tensors(self) -> None:
        recording = self._recording
        if recording is not None and recording.open_step is not None:
            for name, array in self._tensors.items():
                # At the end, tensors may be left that the last step has already saved.
                if recording.table.place(name) not in recording.open_step.saved:
                    recording.observe(name, array, kind=Kind.CUSTOM)
            self._tensors.clear()

    def _include(self, collection: str, regexes: list[str] | None) -> None:
        if regexes is not None:
            self.get_collection(collection).include(regexes)
            self.include_collections = sorted({*self.include_collections, collection})

    def _default_save_config(self) -> SaveConfig | None:
        return SaveConfig(**self.default_values) if self.default_values else None

    @staticmethod
    def _make_numpy_array(value: Any) -> NDArray[Any]:
        return make_numpy_array(value)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle nothing: a hook belongs to its process."""
        return {}


CallbackHook = BaseHook
