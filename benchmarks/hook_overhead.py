"""The overhead of watching a training: our hook compared with other ways, on a CPU or a GPU.

    python -m benchmarks.hook_overhead [--device cpu|cuda] [--rounds N] [--models M…] [--ways W…]

Each way of watching runs in its own process, in which a plain training and an equal watched one take turns in blocks of
steps. All weights and gradients are recorded at every step; nothing is throttled.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measurement import write_results
from tests.conformance.environments import interpreter

# As a multiple of a plain step, on an H200.
GOAL = 1.03
MODELS = {"cpu": ("mlp", "cnn", "transformer"), "cuda": ("gpt2", "resnet18")}
# For one process; a longer run is reported as such.
LIMIT_S = 300

_SCRIPT = Path(__file__).parent / "scripts" / "hook_steps.py"
_REPOSITORY = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Way:
    """A way of watching. Slower ways are measured in fewer and shorter blocks."""

    name: str
    label: str
    rounds: int
    steps: int
    devices: tuple[str, ...] = ("cpu", "cuda")
    # The environment with its packages; empty for this one.
    environment: str = ""


WAYS = (
    Way("nothing", "nothing", 14, 20),
    Way("statistics", "our statistics", 14, 20),
    Way("histograms", "our statistics and histograms", 14, 10),
    Way("raw", "our raw tensors", 4, 3),
    Way("norms", "norms by foreach", 14, 20),
    Way("items", ".item() of four reductions", 6, 5),
    Way("tensorboard", "TensorBoard histograms", 2, 1, environment="tensorboard"),
    Way("smdebug", "smdebug, four reductions", 6, 5, devices=("cpu",), environment="smdebug"),
    Way("smdebug-raw", "smdebug, raw tensors", 6, 5, devices=("cpu",), environment="smdebug"),
)


def main() -> None:
    arguments = _arguments()
    device = arguments.device or _device()
    print(f"{'model':12} {'watched by':30} {'plain ms':>9} {'wall':>8} {'':15} {'CPU':>7} {'bytes/step':>12} dropped")
    results = []
    for model in arguments.models or MODELS[device]:
        for way in WAYS:
            if device not in way.devices or (arguments.ways and way.name not in arguments.ways):
                continue
            told = _measure(model, way, device=device, rounds=arguments.rounds)
            results.append({"model": model, "way": way.name, **told})
            print(_row(model, way, told), flush=True)
    kept = write_results(f"hook_overhead_{device}", {"device": device, "goal": GOAL, "results": results})
    print(f"\nOn a GPU the goal of our statistics is {GOAL}. All of it is in {kept}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what watching a training costs it.")
    parser.add_argument("--device", choices=tuple(MODELS), help="by default a GPU where there is one")
    parser.add_argument("--rounds", type=int, help="at most so many of each way")
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--ways", nargs="*", choices=tuple(way.name for way in WAYS))
    return parser.parse_args()


def _device() -> str:
    has_gpu = subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False) if _has_program() else None
    return "cuda" if has_gpu is not None and has_gpu.returncode == 0 else "cpu"


def _has_program() -> bool:
    return any((Path(folder) / "nvidia-smi").exists() for folder in os.get_exec_path())


def _measure(model: str, way: Way, *, device: str, rounds: int | None) -> dict[str, Any]:
    """Return the report of the script, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        counts = [str(min(way.rounds, rounds or way.rounds)), str(way.steps)]
        python = str(interpreter("smdebug")) if way.environment == "smdebug" else sys.executable
        command = [python, str(_SCRIPT), model, way.name, device, *counts, folder]
        try:
            run = subprocess.run(
                command, env=_environment(way, device), capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return {"failure": f"took longer than {LIMIT_S} s"}
    said = run.stderr.strip().rpartition("\n")[2]
    if run.returncode:
        return {"failure": said}
    told = dict(json.loads(run.stdout.splitlines()[-1]))
    if way.name != "nothing" and not told["bytes_per_step"]:
        return {"failure": f"left nothing behind, so that it has not watched: {said}"}
    return told


def _environment(way: Way, device: str) -> dict[str, str]:
    paths = [str(_REPOSITORY)]
    # It has a module of that name.
    if way.environment != "smdebug":
        paths.append(str(_REPOSITORY / "src"))
    if (
        way.environment == "tensorboard" and device == "cpu"
        # It needs no torch, and this environment has no TensorBoard.
    ):
        found = interpreter("tensorboard").parents[1].glob("lib/python*/site-packages")
        paths += [str(folder) for folder in found]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return environment | ({"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {})


def _row(model: str, way: Way, told: dict[str, Any]) -> str:
    if "failure" in told:
        return f"{model:12} {way.label:30} {told['failure']}"
    plain, watched = told["wall"]["plain"], told["wall"]["watched"]
    # The median of the ratios within pairs: a busy machine slows both members of a pair.
    ratios = [ours / theirs for ours, theirs in zip(watched, plain, strict=True)]
    cpu = median(told["cpu"]["watched"]) / median(told["cpu"]["plain"])
    span = f"[{min(ratios):.3g}-{max(ratios):.3g}]"
    return (
        f"{model:12} {way.label:30} {1e3 * median(plain):9.2f} {median(ratios):8.3f} {span:15} {cpu:7.3f} "
        f"{told['bytes_per_step']:12,.0f} {told['dropped']}"
    )


if __name__ == "__main__":
    main()
