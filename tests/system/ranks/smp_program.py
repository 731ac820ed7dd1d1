"""Trains models in several ways of model parallelism over four ranks, and each in one process with the same batches."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy, relu

RANK = int(os.environ["RANK"])
STEPS, BATCH = 4, 16
Weights = dict[str, list[float]]


def main() -> dict[str, Any]:
    dist.init_process_group("gloo")
    found = {
        "interleaved": compared({"partitions": 2, "microbatches": 4, "ddp": True}, Grouped),
        "simple": compared({"partitions": 2, "microbatches": 2, "pipeline": "simple"}, Grouped),
        "four stages": compared({"partitions": 4, "microbatches": 4}, deep),
        "fewer microbatches than stages": compared({"partitions": 4, "microbatches": 2}, deep),
        "by marks": compared({"partitions": 2, "auto_partition": False, "microbatches": 2}, Skipping),
        "tied": compared({"partitions": 2, "microbatches": 2}, Tied, data=token_batches),
        "split layers": compared({"tensor_parallel_degree": 2, "ddp": True}, split),
        "split with one batch": compared({"tensor_parallel_degree": 2, "prescaled_batch": True}, split, is_shared=True),
        "split and pipelined": compared(
            {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2, "microbatches": 2, "ddp": True}, split
        ),
        "spread": compared({"partitions": 2, "microbatches": 2, "placement_strategy": "spread"}, Grouped),
        "places": places(),
        "modes": modes(),
        "saved": saved(),
        "objects": objects(),
        "scaled": scaled(),
        "accumulated": [accumulated(Tied, partitions=2, microbatches=2), accumulated(embedding_first, **SPLIT_IN_TWO)],
        "errors": errors(),
        "delayed": delayed(),
    }
    dist.destroy_process_group()
    return found


class Grouped(torch.nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """As the public example of the library has it: two networks, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.net1 = torch.nn.Sequential(torch.nn.Linear(6, 24), torch.nn.ReLU(), torch.nn.Linear(24, 12))
        self.net2 = torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.Tanh(), torch.nn.Linear(24, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(self.net2(relu(self.net1(x))), 1)


class Skipping(torch.nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """What the first partition makes goes to the second by two ways, and so does the input, with an optional mask."""

    def __init__(self) -> None:
        super().__init__()
        with smp.partition(0):
            self.first = torch.nn.Linear(6, 6)
            self.second = torch.nn.Linear(6, 6)
        with smp.partition(1):
            self.third = torch.nn.Linear(6, 6)
            self.fourth = torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, scale: float = 2.0) -> torch.Tensor:
        first = torch.tanh(self.first(x))
        second = self.second(first)
        if mask is not None:
            second = second * mask
        third = self.third(second) + first + x
        return self.fourth(third) * scale


class Tied(torch.nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """The last layer has the weights of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(10, 8)
        self.middle = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 10, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.middle(self.embedding(tokens))))


def deep() -> torch.nn.Module:
    layers = [torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 12), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(12, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3))


def split() -> torch.nn.Module:
    with smp.tensor_parallelism():
        first, third = torch.nn.Linear(6, 16), torch.nn.Linear(12, 8)
    return torch.nn.Sequential(
        first, torch.nn.Tanh(), torch.nn.Linear(16, 12), torch.nn.Tanh(), third, torch.nn.Linear(8, 3)
    )


def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    chance = torch.Generator().manual_seed(5)
    for _ in range(STEPS):
        yield torch.randn(BATCH, 6, generator=chance), torch.randint(3, (BATCH,), generator=chance)


def token_batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    chance = torch.Generator().manual_seed(6)
    for _ in range(STEPS):
        yield torch.randint(10, (BATCH,), generator=chance), torch.randint(10, (BATCH,), generator=chance)


@contextmanager
def parallel(config: dict[str, Any]) -> Iterator[None]:
    smp.init(config)
    try:
        yield
    finally:
        dist.barrier()
        smp.shutdown()


@smp.step  # type: ignore[untyped-decorator]
def train_step(model: Any, data: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    output = model(data)
    loss = cross_entropy(output, target)
    model.backward(loss)
    return output, loss


@smp.step  # type: ignore[untyped-decorator]
def test_step(model: Any, data: torch.Tensor, target: torch.Tensor) -> tuple[int, torch.Tensor]:
    output = model(data)
    return int((output.argmax(1) == target).sum()), output


def wrapped(build: Callable[[], torch.nn.Module]) -> tuple[Any, Any]:
    """A model and its optimizer, in the order of the public example; only the first replica has the right weights."""
    torch.manual_seed(11 if smp.dp_rank() == 0 else 12)
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    model = smp.DistributedModel(model)
    return model, smp.DistributedOptimizer(optimizer)


def compared(
    config: dict[str, Any], build: Callable[[], torch.nn.Module], *, data: Any = batches, is_shared: bool = False
) -> dict[str, Any]:
    """The weights of the model that all ranks trained, and of the same that one process did."""
    with parallel(config):
        model, optimizer = wrapped(build)
        count, number = (smp.rdp_size(), smp.rdp_rank()) if is_shared else (smp.dp_size(), smp.dp_rank())
        losses = []
        for x, y in data():
            optimizer.zero_grad()
            _, loss = train_step(model, x[number::count], y[number::count])
            losses.append(loss.reduce_mean().item())
            optimizer.step()
        own = sum(each.to_local().numel() if hasattr(each, "to_local") else each.numel() for each in model.parameters())
        held = sum(each.untyped_storage().nbytes() // 4 for each in stored(model))
        trained = {name: value.flatten().tolist() for name, value in model.state_dict().items()}
    return {"weights": trained, "losses": losses, "own": own, "held": held, "alone": alone(build, data)}


def stored(model: Any) -> list[torch.Tensor]:
    """The memory that is behind the parameters of the module, wherever they are said to be."""
    parts = [each.to_local() if hasattr(each, "to_local") else each for each in model.module.parameters()]
    return [each for each in parts if not each.is_meta]


def alone(build: Callable[[], torch.nn.Module], data: Any) -> dict[str, Any]:
    torch.manual_seed(11)
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for x, y in data():
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    size = sum(each.numel() for each in model.parameters())
    weights = {name: value.flatten().tolist() for name, value in model.state_dict().items()}
    return {"weights": weights, "losses": losses, "size": size}


def places() -> dict[str, Any]:
    names = ["rank", "size", "local_rank", "pp_rank", "pp_size", "tp_rank", "tp_size", "rdp_rank", "rdp_size"]
    names += ["dp_rank", "dp_size", "mp_rank", "mp_size"]
    with parallel({"pipeline_parallel_degree": 2, "tensor_parallel_degree": 2, "ddp": True}):
        return {name: getattr(smp, name)() for name in names}


class Moody(torch.nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """Code of its own that depends on the mode, between layers that keep statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8))
        self.second = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        x = torch.nn.functional.dropout(self.first(x), 0.5, training=self.training)
        if mask is not None:
            x = x * mask
        return self.second(x)


@smp.step(non_split_inputs=["mask"])  # type: ignore[untyped-decorator]
def masked_step(model: Any, data: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return model(data, mask=mask)


def modes() -> dict[str, Any]:
    """Training, evaluation, and calls with other arguments and batches of another size."""
    x, y = next(batches())
    mask = torch.arange(8.0)
    with parallel({"partitions": 2, "microbatches": 2}):
        model, optimizer = wrapped(Moody)
        first = train_step(model, x, y)[0].concat()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            correct, output = test_step(model, x[:4], y[:4])
            masked = masked_step(model, x, mask).concat()
        whole = Moody()
        whole.load_state_dict(model.state_dict())
        batches_seen = int(whole.first[1].num_batches_tracked)
    whole.eval()
    return {
        "output": output.concat().tolist(),
        "output by one": whole(x[:4]).tolist(),
        "masked": masked.tolist(),
        "masked by one": whole(x, mask).tolist(),
        "correct": correct,
        "dropped": first.shape[0],
        "batches": batches_seen,
    }


def saved() -> dict[str, Any]:
    """Training that is saved in the middle, in parts and as a whole, and goes on elsewhere as it would have."""
    folder = Path(os.environ["SM_MODEL_DIR"])
    config = {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2, "microbatches": 2, "ddp": True}
    with parallel(config):
        model, optimizer = wrapped(split)
        went(model, optimizer)
        if smp.rdp_rank() == 0:
            parts = {"model": model.local_state_dict(), "optimizer": optimizer.local_state_dict()}
            smp.save(parts, str(folder / "parts.pt"), partial=True)
        whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        smp.save(whole, str(folder / "whole.pt"), partial=False)
        smp.save_checkpoint(str(folder / "tagged"), "one", model=model, optimizer=optimizer, user_content={"at": 1})
        went(model, optimizer)
        expected = flat(model)
    found = {"expected": expected, "files": sorted(each.name for each in folder.glob("*.pt*"))}
    for name, is_partial in (("parts", True), ("whole", False)):
        with parallel(config):
            model, optimizer = wrapped(split)
            went(model, optimizer)
            state = smp.load(str(folder / f"{name}.pt"), partial=is_partial)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            went(model, optimizer)
            found[name] = flat(model)
    with parallel(config):
        model, optimizer = wrapped(split)
        found["content"] = smp.resume_from_checkpoint(str(folder / "tagged"))
        went(model, optimizer)
        found["resumed"] = flat(model)
    found["by one"] = gone_on_alone(torch.load(folder / "whole.pt"))
    return found


def went(model: Any, optimizer: Any) -> None:
    for x, y in batches():
        optimizer.zero_grad()
        train_step(model, x[smp.dp_rank() :: smp.dp_size()], y[smp.dp_rank() :: smp.dp_size()])
        optimizer.step()


def flat(model: Any) -> list[float]:
    return [number for value in model.state_dict().values() for number in value.flatten().tolist()]


def gone_on_alone(state: dict[str, Any]) -> list[float]:
    """A process that is alone takes up the whole, with an optimizer of torch."""
    model = split()
    model.load_state_dict(state["model"])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    optimizer.load_state_dict(state["optimizer"])
    for x, y in batches():
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    return flat(model)


def objects() -> dict[str, Any]:
    with parallel({"partitions": 2}):
        gathered = smp.allgather({"from": RANK}, smp.MP_GROUP)
        if RANK == 0:
            smp.broadcast("to all", smp.WORLD)
            smp.send([1, 2], 1, smp.RankType.MP_RANK)
        told = None if RANK == 0 else smp.recv_from(0)
        sent = smp.recv_from(0, smp.RankType.MP_RANK) if RANK == 1 else None
        smp.barrier(smp.CommGroup.DP_GROUP)
        return {"gathered": gathered, "told": told, "sent": sent, "group": smp.get_mp_group()}


SPLIT_IN_TWO: dict[str, Any] = {"tensor_parallel_degree": 2, "microbatches": 2}


def embedding_first() -> torch.nn.Module:
    return torch.nn.Sequential(smp.nn.DistributedEmbedding(10, 8), torch.nn.Tanh(), smp.nn.DistributedLinear(8, 10))


@smp.step  # type: ignore[untyped-decorator]
def summing_step(model: Any, data: torch.Tensor, target: torch.Tensor) -> None:
    model.backward(cross_entropy(model(data), target, reduction="sum"))


def accumulated(build: Callable[[], torch.nn.Module], **config: Any) -> list[list[float]]:
    """Gradients of several batches before a step, of a loss that is a sum; by all ranks, and by one."""
    with parallel(config):
        torch.manual_seed(11)
        model = smp.DistributedModel(build(), average_grads_across_microbatches=False)
        optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01))
        count, number = smp.dp_size(), smp.dp_rank()
        for x, y in token_batches():
            summing_step(model, x[number::count], y[number::count])
        optimizer.step()
        found = flat(model)
    torch.manual_seed(11)
    one = build()
    for x, y in token_batches():
        (cross_entropy(one(x), y, reduction="sum") / count).backward()
    torch.optim.SGD(one.parameters(), lr=0.01).step()
    return [found, flat(one)]


@smp.step  # type: ignore[untyped-decorator]
def scaled_step(model: Any, scaler: Any, data: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(data)
    loss = cross_entropy(output.float(), target)
    model.backward(scaler.scale(loss))
    return output


def scaled() -> dict[str, Any]:
    """A loss that is scaled, of a model that computes in half precision; one stage then has a gradient of infinity."""
    x, y = next(batches())
    with parallel({"partitions": 2, "microbatches": 2}):
        model, optimizer = wrapped(Grouped)
        scaler = smp.amp.GradScaler(init_scale=1024.0)
        first = flat(model)
        output = scaled_step(model, scaler, x, y)
        scaler.step(optimizer)
        scaler.update()
        second = flat(model)
        optimizer.zero_grad()
        scaled_step(model, scaler, x, y)
        if smp.pp_rank() == 0:
            next(model.parameters()).grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        third = flat(model)
        moved = max(abs(one - other) for one, other in zip(first, second, strict=True))
        return {"type": str(output[0].dtype), "moved": moved, "skipped": second == third, "scale": scaler.get_scale()}


class Backwards(torch.nn.Module):  # type: ignore[misc]  # mypy does not read torch
    def __init__(self) -> None:
        super().__init__()
        with smp.partition(1):
            self.early = torch.nn.Linear(6, 6)
        self.late = torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.late(self.early(x))


class Deciding(torch.nn.Module):  # type: ignore[misc]  # mypy does not read torch
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.one(x)
        return self.two(-x if x.sum() > 0 else x)


@smp.step  # type: ignore[untyped-decorator]
def forgetful_step(model: Any, data: torch.Tensor) -> torch.Tensor:
    return model(data)


@smp.step  # type: ignore[untyped-decorator]
def failing_step(model: Any, data: torch.Tensor) -> torch.Tensor:
    raise KeyError("no such thing")


def errors() -> dict[str, str]:
    found = {}
    marked = {"partitions": 2, "auto_partition": False}
    cases: list[tuple[str, dict[str, Any], Callable[[], torch.nn.Module], Callable[[Any], Any]]] = [
        ("backwards", marked, Backwards, str),
        ("one partition", marked, Grouped, str),
        ("deciding", {"partitions": 2}, Deciding, str),
        ("too many", {"partitions": 4}, Tied, str),
        ("outside", {"partitions": 2}, Grouped, lambda model: model(torch.ones(4, 6))),
        (
            "uneven",
            {"partitions": 2, "microbatches": 3},
            Grouped,
            lambda model: forgetful_step(model, torch.ones(4, 6)),
        ),
        ("failing", {"partitions": 2}, Grouped, lambda model: failing_step(model, torch.ones(4, 6))),
    ]
    for name, config, build, use in cases:
        with parallel(config):
            try:
                use(smp.DistributedModel(build()))
            except (RuntimeError, ValueError, KeyError) as error:
                found[name] = f"{type(error).__name__}: {error}"
    with warnings.catch_warnings(record=True) as told, parallel({"partitions": 2, "colour": "red"}):
        warnings.simplefilter("always")
    found["unknown"] = " ".join(str(each.message) for each in told)
    return found


def delayed() -> dict[str, Any]:
    """A model that is never whole anywhere."""
    with parallel({"partitions": 2, "microbatches": 2}):
        with smp.delay_param_initialization():
            model = Grouped()
        before = {str(each.device) for each in model.parameters()}
        model = smp.DistributedModel(model)
        optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        losses = []
        for _ in range(30):
            x, y = next(batches())
            optimizer.zero_grad()
            losses.append(train_step(model, x, y)[1].reduce_mean().item())
            optimizer.step()
        return {"before": sorted(before), "first": losses[0], "last": losses[-1]}
