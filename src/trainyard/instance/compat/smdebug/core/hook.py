"""What the hooks of all frameworks have in common: what is to be saved, and when."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from trainyard.formats.tensors.contract import Kind
from trainyard.formats.tensors.summaries import TensorBoardSubscriber
from trainyard.instance.hook import process
from trainyard.instance.hook.configuration import DEFAULT_BUDGET
from trainyard.instance.hook.contract import Audience
from trainyard.instance.hook.recording import SCALAR, Recording

from ..exceptions import InvalidCollectionConfiguration, SMDebugTypeError, SMDebugValueError
from .collection import Collection, CollectionKeys
from .collection_manager import CollectionManager
from .config_constants import DEFAULT_SAVED_COLLECTIONS, DEFAULT_WORKER_NAME
from .configuring import Asked
from .hook_utils import get_tensorboard_dir, verify_and_get_out_dir
from .json_config import create_hook_from_json_config
from .logger import get_logger
from .modes import ALLOWED_MODE_NAMES, ModeKeys, to_mode
from .reduction_config import ReductionConfig
from .save_config import SaveConfig, Saving
from .singleton_utils import set_hook
from .utils import flatten, make_numpy_array, match_inc

_NOT_IN_EVALUATION = frozenset({CollectionKeys.GRADIENTS, CollectionKeys.OPTIMIZER_VARIABLES})


class BaseHook:
    """Saves tensors of a training. Collections may be changed until the first step.

    What fails once a training runs is noted and ends the saving; it never reaches the training.
    """

    default_collections: ClassVar[set[str]]  # which need not say what is in them
    default_include_collections: ClassVar[list[str]]  # which are saved without being asked for
    default_values: ClassVar[Mapping[str, Any]] = {}  # of what a configuration in a file does not say
    manager_class: ClassVar[type[CollectionManager]]

    def __init__(
        self,
        out_dir: str | None = None,
        export_tensorboard: bool = False,
        tensorboard_dir: str | None = None,
        dry_run: bool = False,
        reduction_config: ReductionConfig | None = None,
        save_config: Saving = None,
        include_regex: list[str] | None = None,
        include_collections: list[str] | None = None,
        save_all: bool = False,
        include_workers: str = "one",
    ) -> None:
        self.out_dir = verify_and_get_out_dir(out_dir)
        self.tensorboard_dir = get_tensorboard_dir(export_tensorboard, tensorboard_dir, self.out_dir)
        self.dry_run = dry_run
        self.save_all_workers = include_workers == "all"
        self.save_config = SaveConfig.parse(save_config if save_config is not None else self._usual_save_config())
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
        self._recording: Recording | None = None
        self._scalars: dict[str, float] = {}  # told between two steps
        self._tensors: dict[str, NDArray[Any]] = {}
        set_hook(self)

    @classmethod
    def create_from_json_file(cls, json_file_path: str | None = None) -> Self:
        """The hook that the configuration of a job asks for; FileNotFoundError where there is none."""
        return create_hook_from_json_config(cls, json_file_path, cls.default_values)

    @classmethod
    def hook_from_config(cls, json_config_path: str | None = None) -> Self:
        return cls.create_from_json_file(json_config_path)

    @property
    def worker(self) -> str:
        return self._recording.worker.name if self._recording else self.chief_worker

    def set_mode(self, mode: ModeKeys) -> None:
        """What the program does from now on; each mode counts its own steps."""
        if not isinstance(mode, ModeKeys):
            raise SMDebugValueError(f"{mode!r} is no mode; the modes are {', '.join(ALLOWED_MODE_NAMES)}.")
        self.mode = mode
        self.mode_steps.setdefault(mode, -1)

    def get_collection(self, name: str, create: bool = True) -> Collection:
        return self.collection_manager.get(name, create=create)

    def get_collections(self) -> dict[str, Collection]:
        return self.collection_manager.get_collections()

    def add_collection(self, collection: Collection) -> None:
        if not isinstance(collection, Collection):
            raise SMDebugTypeError(f"{collection!r} is no Collection.")
        self.collection_manager.add(collection)

    def save_scalar(
        self,
        name: str,
        value: Any,
        sm_metric: bool = False,  # noqa: ARG002  # a job's metrics come from its log
        timestamp: float | None = None,  # noqa: ARG002  # that of its step is kept
    ) -> None:
        """A number of this step, saved whatever the configuration says; before the first step, one of that."""
        array = self._make_numpy_array(value)
        if array.size != 1:
            raise SMDebugTypeError(f"The scalar {name} is of {array.size} elements; a scalar is of one.")
        self._scalars[f"{SCALAR}{name}"] = float(array.reshape(-1)[0])
        self._give_scalars()

    def save_tensor(
        self, tensor_name: str, tensor_value: Any, collections_to_write: str | list[str] = CollectionKeys.DEFAULT
    ) -> None:
        """A tensor of these collections, saved whatever the configuration says with whatever the training does next."""
        try:
            array = self._make_numpy_array(tensor_value).copy()
        except TypeError:
            self.logger.warning("The tensor %s is left out: it cannot be made into an array.", tensor_name)
            return
        for name in [collections_to_write] if isinstance(collections_to_write, str) else collections_to_write:
            self.get_collection(name).add_tensor_name(tensor_name)
            self._follow(name, tensor_name)
        self._tensors[tensor_name] = array

    def has_default_hook_configuration(self, default_saved_collections: list[str] = DEFAULT_SAVED_COLLECTIONS) -> bool:
        return {collection.name for collection in self._saved_collections()} == set(default_saved_collections)

    def has_default_configuration(self) -> bool:
        return self.has_default_hook_configuration()

    def should_save_tensor_or_collection(self, tensor_name: str, collection_name: str) -> bool:
        """Whether anything of a tensor, or of a collection, is saved in this step."""
        due = [each for each in self._saved_collections() if self._is_due(each)]
        if any(each.name == collection_name for each in due):
            return True
        return any(match_inc(tensor_name, each.include_regex) for each in due)

    def export_collections(self) -> None:
        """Nothing: they are written with the first step."""

    def close(self) -> None:
        """Write what is left, and the mark of the end."""
        process.release(self)
        if self._recording is not None:
            self._give_tensors()
            self._finish_step(self._recording)
            self._recording.close()

    def forget(self) -> None:
        """This is a forked child: its parent goes on saving."""
        if self._recording is not None:
            self._recording.forget()

    def _begin_step(self) -> Recording | None:
        """The next step of the mode begins; None where nothing is saved at all."""
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
        self._give_scalars()
        return recording

    def _finish_step(self, recording: Recording) -> None:
        recording.finish()

    def _prepare(self) -> None:
        """Take the collections as they are now."""
        for collection in list(self.get_collections().values()):
            is_known = collection.name in self.default_collections
            if not is_known and not collection.include_regex and not collection.tensor_names:
                self._refuse(collection.name)
        self.prepared_collections = True
        if not self.dry_run:
            self._recording = Recording(self._asked().hook_config(), self._followed())
            process.release(self._recording)  # which this hook closes itself, with the step that is open
            process.bind(self)

    def _refuse(self, collection: str) -> None:
        """A script that makes its hook learns of its mistake with the first step; a job is not ended by its file."""
        refusal = InvalidCollectionConfiguration(collection)
        if not self.is_of_file:
            raise refusal
        self.logger.warning("%s It is left out.", refusal)
        del self.get_collections()[collection]

    def _followed(self) -> Audience:
        """Those who follow the hook, and TensorBoard where it is asked for and no job does it."""
        audience = self._audience()
        is_shown = any(isinstance(each, TensorBoardSubscriber) for each in audience.subscribers)
        if self.tensorboard_dir is None or is_shown:
            return audience
        return replace(audience, subscribers=(*audience.subscribers, TensorBoardSubscriber(Path(self.tensorboard_dir))))

    def _audience(self) -> Audience:
        return Audience()

    def _asked(self) -> Asked:
        saved = self._saved_collections()
        return Asked(
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

    def _follow(self, collection: str, tensor: str) -> None:
        """Let a collection have a tensor that was named after the first step."""
        if self._recording is None:
            return
        known = self._recording.selection.collections
        if collection in known:
            names = known[collection].tensor_names | {tensor}
            known[collection] = replace(known[collection], tensor_names=names)

    def _give_scalars(self) -> None:
        """What the program has told goes into the step that is open, if one is."""
        recording = self._recording
        if recording is not None and recording.open_step is not None:
            for name, value in self._scalars.items():
                recording.give_scalar(name, value)
            self._scalars.clear()

    def _give_tensors(self) -> None:
        recording = self._recording
        if recording is not None and recording.open_step is not None:
            for name, array in self._tensors.items():
                if recording.table.place(name) not in recording.open_step.saved:  # the last one has no step of its own
                    recording.give(name, array, kind=Kind.CUSTOM)
            self._tensors.clear()

    def _include(self, collection: str, regexes: list[str] | None) -> None:
        if regexes is not None:
            self.get_collection(collection).include(regexes)
            self.include_collections = sorted({*self.include_collections, collection})

    def _usual_save_config(self) -> SaveConfig | None:
        return SaveConfig(**self.default_values) if self.default_values else None

    @staticmethod
    def _make_numpy_array(value: Any) -> NDArray[Any]:
        return make_numpy_array(value)

    def __getstate__(self) -> dict[str, Any]:
        """A hook belongs to its process; what carries it into another carries none."""
        return {}


CallbackHook = BaseHook
