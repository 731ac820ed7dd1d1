"""Writes for TensorBoard what the hook sees, where the job has a place for that."""

import json
from pathlib import Path

from trainyard.formats.tensors.contract import StepSubscriber
from trainyard.formats.tensors.summaries import TensorBoardSubscriber
from trainyard.link.told import BOARD_CONFIG


def board_of(ml: Path) -> list[StepSubscriber]:
    """One subscriber or, in a job without a TensorBoardOutputConfig, none."""
    try:
        config = json.loads((ml / BOARD_CONFIG).read_bytes())
    except FileNotFoundError:
        return []
    return [TensorBoardSubscriber(Path(config["LocalPath"]))]
