"""How far the workers of an interrupted training had come, as the agent has left it for the next attempt."""

import json
from pathlib import Path

from trainyard.formats.tensors.contract import Mode
from trainyard.instance.hook.contract import Reached
from trainyard.link.told import RESUMED


def read_reached(ml: Path) -> dict[str, Reached]:
    """By the worker's name; nothing in a first attempt, or where it cannot be read."""
    try:
        told = json.loads((ml / RESUMED).read_bytes())
        return {
            worker: Reached(
                int(manifest["last_step"]) + 1,
                {Mode(mode): int(count) for mode, count in manifest.get("mode_steps", {}).items()},
            )
            for worker, manifest in told.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
