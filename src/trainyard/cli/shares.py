"""What of the machine the instances of a job have, in words."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.cli.console import size
from trainyard.showing import inert

Share = Mapping[str, Any]


def share_text(share: Share) -> str:
    """One share: `2 cores, 3.9 GiB, GPU 0 on node-7`; what is not limited is not there."""
    words = [f"{share['Cpus']:g} {'core' if share['Cpus'] == 1 else 'cores'}"] if share.get("Cpus") is not None else []
    words += [size(share["MemoryBytes"])] if share.get("MemoryBytes") is not None else []
    gpus = share.get("Gpus") or ()
    words += [f"{'GPU' if len(gpus) == 1 else 'GPUs'} {', '.join(map(str, gpus))}"] if gpus else []
    where = f" on {inert(share['Node'])}" if share.get("Node") else ""
    return (", ".join(words) or "not limited") + where


def shares_text(shares: Sequence[Share]) -> list[str]:
    """The shares of a job's instances: one line for all where they are alike, else one for each."""
    texts = [share_text(share) for share in shares]
    if len(texts) > 1 and len(set(texts)) == 1:
        return [f"{texts[0]}, each of {len(texts)}"]
    if len(texts) < 2:
        return texts
    return [f"{share.get('Instance', '')}  {text}".strip() for share, text in zip(shares, texts, strict=True)]
