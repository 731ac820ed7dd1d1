"""Times the steps of a training with and without watching, in turns, in one process.

Takes a model, a way of watching, a device, a number of rounds, the steps of a block, and an empty folder. Of two equal
trainings, one is watched; each round is a block of steps of each. Prints as JSON the wall-clock and CPU seconds of each
block, and the bytes that a watched step left in the folder.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.scripts.hook_models import MODELS, Training

# Steps of each before the first round, or the steps of a block if those are fewer.
WARM_UP = 5
NEVER = 1_000_000_000


def main(model: str, watching: str, device: str, rounds: int, steps: int, folder: Path) -> None:
    torch.manual_seed(0)
    trainings = {"plain": MODELS[model](device), "watched": MODELS[model](device)}
    close = WAYS[watching](trainings["watched"], folder)
    for training in trainings.values():
        _block(training, min(WARM_UP, steps))
    size_before = _size(folder)
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in trainings}
    for round_ in range(rounds):
        order = list(trainings.items()) if round_ % 2 else list(reversed(trainings.items()))
        for name, training in order:
            seconds[name].append(_block(training, steps))
    close()
    told = {
        "model": model,
        "watching": watching,
        "parameters": sum(parameter.numel() for parameter in trainings["plain"].model.parameters()),
        "tensors": 2 * len(_parameters(trainings["plain"])),
        "steps": steps,
        "wall": {name: [wall / steps for wall, _ in blocks] for name, blocks in seconds.items()},
        "cpu": {name: [cpu / steps for _, cpu in blocks] for name, blocks in seconds.items()},
        "bytes_per_step": (_size(folder) - size_before) / (rounds * steps),
        "dropped": _count_dropped(folder),
    }
    print(json.dumps(told))


def _block(training: Training, steps: int) -> tuple[float, float]:
    """Return the wall-clock seconds and the CPU seconds of all threads for some steps."""
    _wait(training)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        training.step()
    _wait(training)
    return time.perf_counter() - wall, time.process_time() - cpu


def _wait(training: Training) -> None:
    if training.inputs.is_cuda:
        torch.cuda.synchronize()


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _count_dropped(folder: Path) -> int:
    manifests = [json.loads(file.read_text()) for file in folder.rglob("*manifest.json")]
    return sum(int(manifest.get("dropped", 0)) for manifest in manifests)


def _parameters(training: Training) -> list[torch.Tensor]:
    return [parameter for parameter in training.model.parameters() if parameter.requires_grad]


def _tensors(training: Training) -> list[torch.Tensor]:
    """Return all weights and gradients of a step."""
    parameters = _parameters(training)
    return parameters + [parameter.grad for parameter in parameters if parameter.grad is not None]


def _by_our_hook(parameters: dict[str, str]) -> Callable[[Training, Path], Callable[[], None]]:
    def watch(training: Training, folder: Path) -> Callable[[], None]:
        from trainyard.hook import Hook

        hook = Hook(
            folder, collections=["weights", "biases", "gradients"], parameters={"overhead_budget": "none", **parameters}
        )
        hook.watch(training.model)
        return hook.close

    return watch


def _by_items(training: Training, folder: Path) -> Callable[[], None]:
    """Compute four reductions of each tensor and fetch each one separately."""
    file = (folder / "items.jsonl").open("w")

    def look() -> None:
        with torch.no_grad():
            rows = [[x.norm().item(), x.min().item(), x.max().item(), x.mean().item()] for x in _tensors(training)]
        file.write(json.dumps(rows) + "\n")

    training.look = look
    return file.close


def _by_norms(training: Training, folder: Path) -> Callable[[], None]:
    """Compute only norms, of all tensors at once, and fetch them asynchronously."""
    file = (folder / "norms").open("wb")
    pinned: list[torch.Tensor] = []

    def look() -> None:
        with torch.no_grad():
            norms = torch.stack(torch._foreach_norm(_tensors(training), 2))
        if not norms.is_cuda:
            file.write(norms.numpy().tobytes())
            return
        if len(pinned) < 8:
            pinned.append(torch.empty(norms.shape, pin_memory=True))
        else:
            # From eight steps ago, so the copy is complete.
            file.write(pinned[0].numpy().tobytes())
            pinned.append(pinned.pop(0))
        pinned[-1].copy_(norms, non_blocking=True)

    training.look = look
    return file.close


def _by_tensorboard(training: Training, folder: Path) -> Callable[[], None]:
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(str(folder))
    step = 0

    def look() -> None:
        nonlocal step
        for name, parameter in training.model.named_parameters():
            writer.add_histogram(name, parameter, step)
            writer.add_histogram(f"gradient/{name}", parameter.grad, step)
        step += 1

    training.look = look
    return lambda: writer.close()


def _by_smdebug(reductions: list[str]) -> Callable[[Training, Path], Callable[[], None]]:
    def watch(training: Training, folder: Path) -> Callable[[], None]:
        import smdebug.pytorch as smd

        hook = smd.Hook(
            out_dir=str(folder / "trial"),
            save_config=smd.SaveConfig(save_interval=1),
            reduction_config=smd.ReductionConfig(reductions=reductions) if reductions else None,
            include_collections=["weights", "biases", "gradients", "losses"],
        )
        hook.register_module(training.model)
        return lambda: hook.close()

    return watch


def _not_at_all(_training: Training, _folder: Path) -> Callable[[], None]:
    return lambda: None


WAYS: dict[str, Callable[[Training, Path], Callable[[], None]]] = {
    "nothing": _not_at_all,
    "statistics": _by_our_hook({"start_step": str(NEVER)}),
    "histograms": _by_our_hook({"save_interval": "1", "reductions": "mean", "export_tensorboard": "true"}),
    "raw": _by_our_hook({"save_interval": "1"}),
    "items": _by_items,
    "norms": _by_norms,
    "tensorboard": _by_tensorboard,
    "smdebug": _by_smdebug(["min", "max", "mean", "std"]),
    "smdebug-raw": _by_smdebug([]),
}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), Path(sys.argv[6]))
