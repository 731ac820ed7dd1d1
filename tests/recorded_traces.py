"""Traces for tests: real ones of torch.profiler, and handmade ones whose figures can be computed by hand."""

import io
import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing, nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

from trainyard.formats.profiles.traces.contract import Trace
from trainyard.formats.profiles.traces.reader import read_trace

CPU = [ProfilerActivity.CPU]


@dataclass(frozen=True, slots=True)
class OwnFigures:
    """What torch itself says about an operator. Times are microseconds."""

    calls: int
    total_us: float
    self_us: float


class RandomImages(Dataset[tuple[torch.Tensor, int]]):  # type: ignore[misc]  # mypy does not follow torch
    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.randn(3, 16, 16), index % 10


def record_training(
    path: Path, *, steps: int = 3, workers: int = 0, is_scheduled: bool = True
) -> dict[str, OwnFigures]:
    """Train a small network under the profiler; return torch's own table of operators."""
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10))
    optimizer = torch.optim.Adam(network.parameters())
    batches = iter(DataLoader(RandomImages(), batch_size=8, num_workers=workers))
    plan = schedule(wait=1, warmup=1, active=steps) if is_scheduled else None
    with profile(activities=CPU, schedule=plan, record_shapes=True, profile_memory=True) as profiler:
        for _ in range(steps + 1 if is_scheduled else steps):
            images, labels = next(batches)
            loss = nn.functional.cross_entropy(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
        # The last step stays open until the window closes, so that both tables are of the same events.
        if is_scheduled:
            next(batches)
    profiler.export_chrome_trace(str(path))
    return {
        each.key: OwnFigures(each.count, each.cpu_time_total, each.self_cpu_time_total)
        for each in profiler.key_averages()
    }


def record_ranks(folder: Path) -> list[Path]:
    """Let two ranks reduce gradients and a tensor over gloo; return the trace of each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(_train_rank, args=(str(folder), port), nprocs=2)
    return [folder / f"rank{rank}.json" for rank in range(2)]


def _train_rank(rank: int, folder: str, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    network = nn.parallel.DistributedDataParallel(nn.Linear(64, 10))
    plan = schedule(wait=0, warmup=1, active=2, repeat=1)
    with profile(activities=CPU, schedule=plan, record_shapes=True) as profiler:
        for _ in range(3):
            network(torch.randn(8, 64)).sum().backward()
            distributed.all_reduce(torch.ones(1000))
            profiler.step()
    profiler.export_chrome_trace(f"{folder}/rank{rank}.json")
    # Neither rank may leave while the other still needs it. On a loaded machine, threads of torch 2.13 abort some
    # processes at their end, with or without a profiler; all that is wanted of this one is in its trace.
    distributed.barrier()
    os._exit(0)


Event = dict[str, Any]


def complete(category: str, name: str, start_us: float, duration_us: float, tid: int | str = 1, **more: Any) -> Event:
    """Return an event with a duration; `more` are members, and `args` its arguments."""
    own = {"ph": "X", "cat": category, "name": name, "pid": 10, "tid": tid, "ts": start_us, "dur": duration_us}
    return {**own, **more}


def step(number: int, start_us: float, duration_us: float) -> Event:
    return complete("user_annotation", f"ProfilerStep#{number}", start_us, duration_us)


def launch(start_us: float, duration_us: float, correlation: int, *, operator: int = 0, tid: int = 1) -> Event:
    arguments = {"correlation": correlation, "External id": operator}
    return complete("cuda_runtime", "cudaLaunchKernel", start_us, duration_us, tid, args=arguments)


def kernel(name: str, start_us: float, duration_us: float, correlation: int, **arguments: Any) -> Event:
    own = {"device": 0, "stream": 7, "correlation": correlation, **arguments}
    return complete("kernel", name, start_us, duration_us, 7, pid=own["device"], args=own)


def document(events: Sequence[Event], **header: Any) -> bytes:
    known: Mapping[str, Any] = {"schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000}
    return json.dumps({**known, **header, "traceEvents": list(events)}).encode()


def trace_of(events: Sequence[Event], **header: Any) -> Trace:
    return read_bytes(document(events, **header))


def read_bytes(data: bytes) -> Trace:
    return read_trace(io.BytesIO(data))
