"""Writes and reads the statistics of a training with one library, in the environment of that library.

    tensor_reader.py LIBRARY write PLACE STEPS TENSORS
    tensor_reader.py LIBRARY one|read PLACE

`one` reads one series and ends. `read` does so repeatedly, then reads all series, and prints the CPU seconds as JSON.
Every library reads five statistics of every tensor as written; sums of what was read are compared. Only the reader for
Trainyard imports it, because the other environments do not have it.
"""

import importlib
import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

STATISTICS = ("mean", "std", "mean_abs", "min", "max")
# The same five for smdebug.
REDUCTIONS = (("mean", False), ("std", False), ("mean", True), ("min", False), ("max", False))
WORKER = "worker_0"

Series = list[float]


class Library(Protocol):
    def load(self) -> None:
        """Import what reading needs."""

    def write(self, place: Path, steps: int, tensors: int) -> None: ...

    def open(self, place: Path) -> None: ...

    def names(self) -> list[str]: ...

    def one(self, name: str, statistic: str) -> Any: ...

    def all(self) -> Any:
        """Return every statistic of every tensor at every step."""

    def sum(self, read: Any) -> float: ...


def name_of(tensor: int) -> str:
    return f"gradient/Net_layers.{tensor}.weight"


def number(step: int, tensor: int, statistic: int) -> float:
    """Return a value to write, exact in 32 bits."""
    return math.floor(1000 * math.sin(step + 7 * tensor + 13 * statistic)) / 1024


class Trainyard:
    def write(self, place: Path, steps: int, tensors: int) -> None:
        import numpy as np

        from trainyard.formats.tensors.contract import Kind, Mode, Step, TensorInfo, TensorTable
        from trainyard.formats.tensors.recordings.trial_writer import TrialWriter

        infos = [TensorInfo(name_of(each), Kind.GRADIENT, (8, 8), "float32") for each in range(tensors)]
        table, writer = TensorTable(tuple(infos)), TrialWriter(place, worker=WORKER)
        empty = np.empty(0, np.float32)
        for step in range(steps):
            told = np.zeros((tensors, 8), np.float32)
            for tensor in range(tensors):
                told[tensor, :5] = [number(step, tensor, each) for each in range(len(STATISTICS))]
            writer.append(
                Step(step, Mode.TRAIN, step, 0, WORKER, table, told, empty, np.empty(0), saved=np.ones(tensors, bool))
            )
        writer.close()

    def load(self) -> None:
        from trainyard.trial import create_trial

        self._create = create_trial

    def open(self, place: Path) -> None:
        self._trial = self._create(place)

    def names(self) -> list[str]:
        return self._trial.tensor_names()

    def one(self, name: str, statistic: str) -> Any:
        return self._trial.series(name, statistic).values

    def all(self) -> Any:
        return self._trial.table(statistics=STATISTICS).values

    def sum(self, read: Any) -> float:
        return float(read.sum(dtype="float64"))


class Smdebug:
    def write(self, place: Path, steps: int, tensors: int) -> None:
        """Write reductions as its PyTorch hook does."""
        import numpy as np

        hooks, writers = importlib.import_module("smdebug.core.collection_manager"), _module("smdebug.core.writer")
        modes = _module("smdebug.core.modes").ModeKeys
        collections = hooks.CollectionManager()
        collections.create_collection("gradients")
        collections.get("gradients").tensor_names = {name_of(each) for each in range(tensors)}
        collections.set_num_workers(1)
        collections.export(str(place), f"{WORKER}_collections.json")
        for step in range(steps):
            writer = writers.FileWriter(trial_dir=str(place), step=step, worker=WORKER)
            for tensor in range(tensors):
                for each, (word, is_abs) in enumerate(REDUCTIONS):
                    name = f"smdebug/reductions/{'abs_' if is_abs else ''}{word}/{name_of(tensor)}"
                    value = np.float32(number(step, tensor, each))
                    writer.write_tensor(tdata=np.array([value]), tname=name, mode=modes.TRAIN, mode_step=step)
            writer.close()
        (place / "training_job_end.ts").touch()

    def load(self) -> None:
        os.environ["SMDEBUG_TRAINING_END_DELAY_REFRESH"] = "0"
        os.environ["SMDEBUG_LOG_LEVEL"] = "error"
        self._create = _module("smdebug.trials").create_trial

    def open(self, place: Path) -> None:
        self._trial = self._create(str(place))

    def names(self) -> list[str]:
        names: list[str] = self._trial.tensor_names()
        return names

    def one(self, name: str, statistic: str) -> Series:
        tensor = self._trial.tensor(name)
        word, is_abs = REDUCTIONS[STATISTICS.index(statistic)]
        return [tensor.reduction_value(step, word, abs=is_abs).item() for step in tensor.steps()]

    def all(self) -> list[Series]:
        return [self.one(name, statistic) for name in self.names() for statistic in STATISTICS]

    def sum(self, read: Any) -> float:
        return _total(read)


class Tensorboard:
    def write(self, place: Path, steps: int, tensors: int) -> None:
        """Write a scalar for each statistic of each tensor."""
        events, summaries = (_module(f"tensorboard.compat.proto.{each}_pb2") for each in ("event", "summary"))
        writer = _module("tensorboard.summary.writer.event_file_writer").EventFileWriter(str(place))
        for step in range(steps):
            for tensor in range(tensors):
                for each, word in enumerate(STATISTICS):
                    value = summaries.Summary.Value(
                        tag=f"{name_of(tensor)}/{word}", simple_value=number(step, tensor, each)
                    )
                    summary = summaries.Summary(value=[value])
                    writer.add_event(events.Event(step=step, wall_time=step, summary=summary))
        writer.close()

    def load(self) -> None:
        self._reader = _module("tensorboard.backend.event_processing.event_accumulator")

    def open(self, place: Path) -> None:
        reader = self._reader
        self._events = reader.EventAccumulator(str(place), size_guidance={reader.TENSORS: 0, reader.SCALARS: 0})
        self._events.Reload()

    def names(self) -> list[str]:
        tags: list[str] = self._events.Tags()["scalars"]
        return sorted({tag.rpartition("/")[0] for tag in tags})

    def one(self, name: str, statistic: str) -> Series:
        return [event.value for event in self._events.Scalars(f"{name}/{statistic}")]

    def all(self) -> list[Series]:
        return [self.one(name, statistic) for name in self.names() for statistic in STATISTICS]

    def sum(self, read: Any) -> float:
        return _total(read)


def main(library: str, task: str, place: str, *sizes: str) -> None:
    libraries: dict[str, Callable[[], Library]] = {
        "trainyard": Trainyard,
        "smdebug": Smdebug,
        "tensorboard": Tensorboard,
    }
    made = libraries[library]()
    if task == "write":
        made.write(Path(place), *(int(size) for size in sizes))
        return
    name = name_of(0)
    imported, _ = measure(made.load)
    opened, _ = measure(lambda: made.open(Path(place)))
    first, series = measure(lambda: made.one(name, "mean"))
    told: dict[str, Any] = {"import": imported, "one_first": opened + first, "one_sum": made.sum(series)}
    if task == "read":
        told["one_warm"] = min(measure(lambda: made.one(name, "mean"))[0] for _ in range(5))
        told["all_first"], everything = measure(made.all)
        told["all_warm"] = min(measure(made.all)[0] for _ in range(3))
        told["all_sum"] = made.sum(everything)
    print(json.dumps(told))


def measure(do: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of all threads, and the result."""
    before = time.process_time_ns()
    given = do()
    return (time.process_time_ns() - before) / 1e9, given


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _total(read: Any) -> float:
    return math.fsum(_total(each) for each in read) if isinstance(read, list) else float(read)


if __name__ == "__main__":
    main(*sys.argv[1:])
