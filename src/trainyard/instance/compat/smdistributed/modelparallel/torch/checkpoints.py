"""Saves and loads checkpoints: each rank's part in its own file, or the whole model in one."""

import shutil
from pathlib import Path
from typing import Any

import torch

from .communication import barrier
from .model import DistributedModel, current_model
from .world import mp_rank, rank, rdp_rank

_NEWEST = "newest"


def save(obj: Any, f: str, partial: bool = True, **options: Any) -> None:
    """Save an object: each rank in its own file if `partial`, else the first rank of a model in one file.

    Of the ranks that hold the same part, one calls this: data parallel rank 0, as in AWS's examples.
    """
    if partial:
        torch.save(obj, f"{f}_{mp_rank()}", **options)
    elif mp_rank() == 0:
        torch.save(obj, f, **options)


def load(f: str, map_location: Any = "cpu", partial: bool = True, **options: Any) -> Any:
    """Load what `save` saved on this rank, or for all."""
    return torch.load(f"{f}_{mp_rank()}" if partial else f, map_location=map_location, **options)


def save_checkpoint(
    path: str,
    tag: str,
    partial: bool = True,
    model: DistributedModel | None = None,
    optimizer: Any = None,
    user_content: Any = None,
    translate_if_full: bool = True,  # noqa: ARG001
    num_kept_partial_checkpoints: int | None = None,
) -> None:
    """Save a model, its optimizer and any content of the script. All ranks call this.

    `translate_if_full` has no effect. `resume_from_checkpoint` loads the newest checkpoint by default.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    if partial:
        _save_parts(folder / f"{tag}_partial", model, optimizer)
    else:
        _save_whole(folder / tag, model, optimizer)
    barrier()
    if rank() == 0:
        content = folder / f"{tag}_partial" / "user_content.pt" if partial else folder / f"user_content_{tag}"
        torch.save(user_content, content)
        (folder / _NEWEST).write_text(tag)
        if partial and num_kept_partial_checkpoints:
            _remove_old(folder, num_kept_partial_checkpoints)
    barrier()


def resume_from_checkpoint(
    path: str,
    tag: str | None = None,
    partial: bool = True,
    strict: bool = True,
    load_optimizer: bool = True,
    **_options: Any,
) -> Any:
    """Load what `save_checkpoint` saved, and return the script's own content. All ranks call this.

    The model must exist, and gets its state at once. Its optimizer may be created later.
    """
    model = current_model()
    if model is None:
        raise RuntimeError("Create the smp.DistributedModel before resuming from a checkpoint.")
    folder = Path(path)
    name = tag or (folder / _NEWEST).read_text()
    if partial:
        part = folder / f"{name}_partial"
        model.load_state_dict(_load_file(part / f"model_{mp_rank()}.pt"), strict=strict)
        state, content = part / f"optimizer_{mp_rank()}.pt", part / "user_content.pt"
    else:
        model.load_state_dict(_load_file(folder / name)["model"], strict=strict)
        state, content = folder / name, folder / f"user_content_{name}"
    if load_optimizer and state.exists():
        optimizer_state = _load_file(state) if partial else _load_file(state)["optimizer"]
        if optimizer_state is not None:
            model.load_optimizer_state(optimizer_state)
    # Any object of the script.
    return torch.load(content, weights_only=False)


def _save_parts(folder: Path, model: DistributedModel | None, optimizer: Any) -> None:
    if rdp_rank() != 0:
        return
    folder.mkdir(exist_ok=True)
    if model is not None:
        torch.save(model.local_state_dict(), folder / f"model_{mp_rank()}.pt")
    if optimizer is not None:
        torch.save(optimizer.local_state_dict(), folder / f"optimizer_{mp_rank()}.pt")


def _save_whole(file: Path, model: DistributedModel | None, optimizer: Any) -> None:
    parts = {"model": model, "optimizer": optimizer}
    states = {name: None if part is None else part.state_dict() for name, part in parts.items()}
    if rank() == 0:
        torch.save(states, file)


def _remove_old(folder: Path, count: int) -> None:
    """Keep only the `count` newest."""
    by_age = sorted(folder.glob("*_partial"), key=lambda each: each.stat().st_mtime_ns)
    for each in by_age[:-count]:
        shutil.rmtree(each)


def _load_file(file: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(file, map_location="cpu")
    return loaded
