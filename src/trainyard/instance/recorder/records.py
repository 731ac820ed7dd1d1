"""A record on disk: `records/<worker>/<step, 12 digits>/`, which appears whole or not at all.

record.json        what it is, and the losses of its steps, exact
state.safetensors  the weights and the state of the optimizers before the first of its steps
inputs.pt          what went into its steps, as torch saves it
"""

import io
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainyard.formats.tensors.safetensors import HEAD_BYTES, RawTensor, decode_header, encode, header_bytes
from trainyard.instance.recorder.inputs import Kept, tensors_in
from trainyard.instance.recorder.states import Tensors, TrainingState

if TYPE_CHECKING:
    from trainyard.instance.recorder.recording import RecordedStep

FORMAT = 1
_ABOUT, _STATE, _INPUTS = "record.json", "state.safetensors", "inputs.pt"


@dataclass(frozen=True, slots=True)
class Record:
    """What is needed to run the steps from that of the state to the last again."""

    worker: str
    step: int
    why: str
    state: TrainingState
    steps: "tuple[RecordedStep, ...]"


@dataclass(frozen=True, slots=True)
class ReadStep:
    """A step as it was read: its inputs as tensors, and batches with their structure where that could be kept."""

    number: int
    random: Any
    groups: list[list[dict[str, Any]]]
    batches: list[Any]
    arguments: list[list[torch.Tensor]]
    targets: list[list[torch.Tensor]]
    losses: tuple[tuple[str, str], ...]  # each value as float.hex has it


@dataclass(frozen=True, slots=True)
class ReadRecord:
    step: int
    state: TrainingState
    steps: tuple[ReadStep, ...]
    changed: str  # what the program wrote into after it had gone in, so that it is not what it was; mostly nothing


def write_record(folder: Path, record: Record, *, unfinished: Path) -> None:
    """Write a record below a folder, to which it is moved when it is whole. OSError where the disk takes no more.

    `unfinished` is on the same disk, but not under the folder, of which others send away what they find.
    """
    place = folder / record.worker / f"{record.step:012}"
    place.parent.mkdir(parents=True, exist_ok=True)
    new = unfinished / f"{record.worker}-{place.name}"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        with (new / _STATE).open("wb") as file:
            file.writelines(_encoded(record.state.tensors))
        torch.save(_inputs(record), new / _INPUTS)
        (new / _ABOUT).write_text(json.dumps(_about(record), indent=1))
        new.rename(place)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def read_record(folder: Path, worker: str, step: int) -> ReadRecord:
    """The record from which a step of a worker can be run again. LookupError says which there are."""
    found = {place: json.loads((place / _ABOUT).read_bytes()) for place in _places(folder / worker)}
    fitting = [place for place, about in found.items() if about["first"] <= step <= about["step"]]
    if not fitting:
        there = ", ".join(f"{about['first']} to {about['step']}" for about in found.values()) or "none"
        raise LookupError(f"the step was not recorded; recorded steps are: {there}")
    place, about = fitting[-1], found[fitting[-1]]
    saved = torch.load(place / _INPUTS, weights_only=False)
    state = TrainingState(about["first"], dict(_decoded((place / _STATE).read_bytes())), saved["plain"])
    steps = tuple(
        ReadStep(**values, losses=tuple((name, value) for name, value in losses))
        for values, losses in zip(saved["steps"], about["losses"], strict=True)
        if values["number"] <= step
    )
    return ReadRecord(step, state, steps, about["changed"])


def exact(loss: torch.Tensor) -> str:
    """A loss as text that has all its bits; of one with several elements, their sum."""
    return float(loss.double().sum().item()).hex()


def _about(record: Record) -> Mapping[str, Any]:
    changed = [each.number for each in record.steps if any(kept.has_changed for kept in each.inputs.all())]
    return {
        "format": FORMAT,
        "worker": record.worker,
        "step": record.step,
        "first": record.state.step,
        "why": record.why,
        "torch": torch.__version__,
        "losses": [[(name, exact(loss)) for name, loss in step.losses] for step in record.steps],
        "changed": f"inputs of step {changed[0]}" if changed else "",
    }


def _inputs(record: Record) -> Mapping[str, Any]:
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


def _storable(kept: Kept) -> Any:
    """Nothing of a batch whose objects cannot be saved; what the model made of it is there all the same."""
    try:
        torch.save(kept.value, io.BytesIO())
    except Exception:  # of any class of the program
        return None
    return kept.value


def _encoded(tensors: Tensors) -> Iterator[bytes | memoryview]:
    raw = {
        name: RawTensor(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), _bytes(tensor))
        for name, tensor in tensors.items()
    }
    return encode(raw)


def _bytes(tensor: torch.Tensor) -> memoryview:
    return memoryview(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


def _decoded(data: bytes) -> Iterator[tuple[str, torch.Tensor]]:
    header = data[HEAD_BYTES : HEAD_BYTES + header_bytes(data[:HEAD_BYTES])]
    for name, entry in decode_header(header).items():
        part = bytearray(data[entry.start : entry.end])
        dtype = getattr(torch, entry.dtype)
        tensor = torch.frombuffer(part, dtype=dtype) if part else torch.empty(0, dtype=dtype)
        yield name, tensor.reshape(entry.shape)


def _places(folder: Path) -> list[Path]:
    places = folder.iterdir() if folder.is_dir() else []
    return sorted(place for place in places if place.name.isdigit() and (place / _ABOUT).is_file())
