"""A flight record on disk: `records/<worker>/<step, 12 digits>/`, which appears atomically.

`record.json` describes it and has the exact losses of its steps. `state.safetensors` has the weights and the optimizer
state before its first step. `inputs.pt` has the inputs of its steps, as saved by torch.
"""

import io
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainyard.formats.tensors.encoding.safetensors import HEAD_BYTES, RawTensor, decode_header, encode, header_bytes
from trainyard.instance.recorder.inputs import InputValue, tensors_in
from trainyard.instance.recorder.states import Tensors, TrainingState

if TYPE_CHECKING:
    from trainyard.instance.recorder.flight_recorder import RecordedStep

FORMAT = 1
_ABOUT, _STATE, _INPUTS = "record.json", "state.safetensors", "inputs.pt"


@dataclass(frozen=True, slots=True)
class FlightRecord:
    """What is needed to replay the steps from the one of `state` to the last."""

    worker: str
    step: int
    why: str
    state: TrainingState
    steps: "tuple[RecordedStep, ...]"


@dataclass(frozen=True, slots=True)
class LoadedStep:
    """A step read from disk: its inputs as tensors, and its batches with their structure if that could be saved.

    Each loss is a name and a value as written by `float.hex`.
    """

    number: int
    random: Any
    groups: list[list[dict[str, Any]]]
    batches: list[Any]
    arguments: list[list[torch.Tensor]]
    targets: list[list[torch.Tensor]]
    losses: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class LoadedRecord:
    step: int
    state: TrainingState
    steps: tuple[LoadedStep, ...]
    # Which inputs the program changed before they were recorded; mostly empty.
    changed: str


def write_record(folder: Path, record: FlightRecord, *, unfinished: Path) -> None:
    """Write a record, and move it into the folder when it is complete. OSError if the disk is full.

    `unfinished` is on the same disk, but outside the folder, since everything in the folder is uploaded.
    """
    place = folder / record.worker / f"{record.step:012}"
    place.parent.mkdir(parents=True, exist_ok=True)
    new = unfinished / f"{record.worker}-{place.name}"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        with (new / _STATE).open("wb") as file:
            file.writelines(_encode_tensors(record.state.tensors))
        torch.save(_inputs(record), new / _INPUTS)
        (new / _ABOUT).write_text(json.dumps(_about(record), indent=1))
        new.rename(place)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def read_record(folder: Path, worker: str, step: int) -> LoadedRecord:
    """Return the record from which a step of a worker can be replayed; LookupError lists the recorded steps."""
    found = {place: json.loads((place / _ABOUT).read_bytes()) for place in _record_folders(folder / worker)}
    fitting = [place for place, about in found.items() if about["first"] <= step <= about["step"]]
    if not fitting:
        recorded = ", ".join(f"{about['first']} to {about['step']}" for about in found.values()) or "none"
        raise LookupError(f"the step was not recorded; recorded steps are: {recorded}")
    place, about = fitting[-1], found[fitting[-1]]
    saved = torch.load(place / _INPUTS, weights_only=False)
    state = TrainingState(about["first"], dict(_decode_tensors((place / _STATE).read_bytes())), saved["plain"])
    steps = tuple(
        LoadedStep(**values, losses=tuple((name, value) for name, value in losses))
        for values, losses in zip(saved["steps"], about["losses"], strict=True)
        if values["number"] <= step
    )
    return LoadedRecord(step, state, steps, about["changed"])


def exact_text(loss: torch.Tensor) -> str:
    """Return a loss as text with all its bits; a loss with several elements is summed."""
    return float(loss.double().sum().item()).hex()


def _about(record: FlightRecord) -> Mapping[str, Any]:
    changed = [each.number for each in record.steps if any(kept.has_changed for kept in each.inputs.all())]
    return {
        "format": FORMAT,
        "worker": record.worker,
        "step": record.step,
        "first": record.state.step,
        "why": record.why,
        "torch": torch.__version__,
        "losses": [[(name, exact_text(loss)) for name, loss in step.losses] for step in record.steps],
        "changed": f"inputs of step {changed[0]}" if changed else "",
    }


def _inputs(record: FlightRecord) -> Mapping[str, Any]:
    steps = [
        {
            "number": step.number,
            "random": step.random,
            "groups": step.groups,
            "batches": [_storable(kept) for kept in step.inputs.batches],
            "arguments": [tensors_in(kept.value) for kept in step.inputs.arguments],
            "targets": [tensors_in(kept.value) for kept in step.inputs.targets],
        }
        for step in record.steps
    ]
    return {"plain": record.state.plain, "steps": steps}


def _storable(kept: InputValue) -> Any:
    """Nothing of a batch whose objects cannot be saved; what the model made of it is there all the same."""
    try:
        torch.save(kept.value, io.BytesIO())
    except Exception:  # of any class of the program
        return None
    return kept.value


def _encode_tensors(tensors: Tensors) -> Iterator[bytes | memoryview]:
    raw = {
        name: RawTensor(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), _bytes(tensor))
        for name, tensor in tensors.items()
    }
    return encode(raw)


def _bytes(tensor: torch.Tensor) -> memoryview:
    return memoryview(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


def _decode_tensors(data: bytes) -> Iterator[tuple[str, torch.Tensor]]:
    header = data[HEAD_BYTES : HEAD_BYTES + header_bytes(data[:HEAD_BYTES])]
    for name, entry in decode_header(header).items():
        part = bytearray(data[entry.start : entry.end])
        dtype = getattr(torch, entry.dtype)
        tensor = torch.frombuffer(part, dtype=dtype) if part else torch.empty(0, dtype=dtype)
        yield name, tensor.reshape(entry.shape)


def _record_folders(folder: Path) -> list[Path]:
    places = folder.iterdir() if folder.is_dir() else []
    return sorted(place for place in places if place.name.isdigit() and (place / _ABOUT).is_file())
