"""The same scripts with AWS's own smdebug and with ours: names, steps, values and errors, all that trials tell."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conformance.conftest import FLOWS
from tests.conformance.environments import interpreter

# Theirs divides by n - 1 where a reduction is saved, and by n where it is taken of a saved tensor; ours always by n.
SPREADS = {"std": 0.5, "variance": 1.0, "abs_std": 0.5, "abs_variance": 1.0}
ROUNDING = 1e-7
TINY = float(np.finfo(np.float32).tiny)  # below which 32-bit floats lose digits
# What theirs has no answer to without being asked to save it, and ours always knows.
KNOWN_HERE = {"ShapeUnavailableForStep"}


def told(python: Path | str, flow: str, folder: Path) -> dict[str, Any]:
    """What a flow prints with an interpreter."""
    folder.mkdir()
    run = subprocess.run(
        [str(python), str(FLOWS / f"{flow}.py"), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={"OMP_NUM_THREADS": "1", "SMDEBUG_LOG_LEVEL": "off", "SMDEBUG_TRAINING_END_DELAY_REFRESH": "0"},
        cwd=folder,
    )
    assert run.returncode == 0, run.stderr[-6000:]
    answer: dict[str, Any] = json.loads(run.stdout)
    return answer


def differences(theirs: Any, ours: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Where ours does not tell what theirs tells."""
    if path[-2:-1] == ("reductions",):
        yield from _other_reductions(theirs, ours, path)
    elif isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        if theirs.keys() != ours.keys():
            yield f"{path}: {sorted(theirs)} there, {sorted(ours)} here"
        for key in theirs.keys() & ours.keys():
            yield from differences(theirs[key], ours[key], (*path, key))
    elif theirs != ours and str(theirs) not in KNOWN_HERE and not _are_close(theirs, ours):
        yield f"{path}: {theirs} there, {ours} here"


def _other_reductions(theirs: Mapping[str, list[float]], ours: Mapping[str, list[float]], path: tuple[str, ...]) -> Any:
    """Ours knows all of them, whichever were asked for."""
    for word, value in theirs.items():
        own = ours.get(word, [np.nan])
        if word in SPREADS:
            size = ours["abs_sum"][0] / ours["abs_mean"][0]
            own = [own[0] * (size / (size - 1)) ** SPREADS[word]]
        if not _are_close(value, own, smallest=TINY if "prod" in word else ROUNDING):
            yield f"{path}: the {word} is {value} there, {own} here"


def _are_close(theirs: Any, ours: Any, *, smallest: float = ROUNDING) -> bool:
    """The same numbers, up to the rounding of 32-bit floats of about 1 that are added up in another order."""
    try:
        one, other = np.asarray(theirs, float), np.asarray(ours, float)
    except (TypeError, ValueError):
        return False
    return one.shape == other.shape and np.allclose(one, other, rtol=2e-6, atol=smallest)


@pytest.mark.slow
def test_scripts_for_torch_save_what_they_save_with_the_original(tmp_path: Path) -> None:
    theirs = told(interpreter("smdebug"), "readings_with_smdebug", tmp_path / "theirs")
    ours = told(sys.executable, "readings_with_smdebug", tmp_path / "ours")
    assert len(theirs) > 15
    assert theirs["judged"] == {"first": 0, "last": 4, "before": None}
    assert list(differences(theirs, ours)) == []


@pytest.mark.slow
def test_scripts_for_xgboost_save_what_they_save_with_the_original(tmp_path: Path) -> None:
    theirs = told(interpreter("smdebug"), "boosting_with_smdebug", tmp_path / "theirs")
    ours = told(sys.executable, "boosting_with_smdebug", tmp_path / "ours")
    assert len(theirs["all_collections"]["names"]) > 30
    assert list(differences(theirs, ours)) == []
