"""How the data loader of a rank keeps up with its steps, and how many workers it should have."""

import math
from dataclasses import dataclass

import numpy as np

from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.verdict.steady_state import SteadyState

# What processes that compute take of a core, at least.
_COMPUTING = 0.6
# Cores are short if the job takes so much of them; or less, on a machine that other work fills.
_CORES_SHORT, _CORES_SHORT_ON_FULL_MACHINE = 0.75, 0.15
# Workers are started again for each epoch: few steps have most of the wait, each far above the usual one.
_START_SHARE, _MAX_START_ROWS, _START_TIMES = 0.6, 0.34, 5.0
# Workers that make batches all the time deliver one per step.
_BUSY_WORKERS = 0.6
# Workers that wait for their reads may be more than cores, up to a limit that memory sets.
_WAITING_WORKERS_PER_CORE, _MAX_WORKERS = 4, 32


@dataclass(frozen=True, slots=True)
class LoaderLoad:
    """How a loader keeps up. `needed_workers` would make a batch in the time in which the rank computes one step.

    `computing` is the share of a core that each process which makes batches takes, and None if that is not known.
    `best_workers` is how many workers a rank should have; what it has, if nothing says otherwise.
    """

    fetch_s: float | None
    needed_workers: int | None
    computing: float | None
    is_computing: bool
    are_cores_short: bool
    are_workers_busy: bool
    starts_share: float
    best_workers: int

    @property
    def starts_workers_often(self) -> bool:
        return self.starts_share >= _START_SHARE


def measure_loader(state: SteadyState) -> LoaderLoad:
    """Return how the main loader of the lead rank keeps up. The verdict and the rule Dataloader both judge by this."""
    loader = state.loader
    fetches = [each for each in loader.fetch_s if math.isfinite(each)] if loader is not None else []
    fetch_s = float(np.mean(fetches)) if fetches else None
    workers = loader.workers if loader is not None else 0
    wait_s = state.lead.phases_s[StepPhase.DATA_WAIT]
    compute_s = max(state.lead.step_s - wait_s, 1e-6)
    computing = _computing(state, workers, wait_s, compute_s)
    used, cores = state.cores_used, state.cores
    share_used = used / cores if used is not None and cores else None
    short = _CORES_SHORT_ON_FULL_MACHINE if state.is_machine_full else _CORES_SHORT
    needed = int(np.ceil(fetch_s / compute_s)) if fetch_s is not None else None
    # Where that is not known, loaders are taken to compute.
    is_computing = computing is None or computing >= _COMPUTING
    return LoaderLoad(
        fetch_s=fetch_s,
        needed_workers=needed,
        computing=computing,
        is_computing=is_computing,
        are_cores_short=share_used is not None and share_used >= short,
        are_workers_busy=bool(fetch_s and workers and fetch_s / workers >= _BUSY_WORKERS * state.lead.step_s),
        starts_share=_starts_share(state) if loader is not None and workers and not loader.is_persistent else 0.0,
        best_workers=_best_workers(state, workers, needed, is_computing=is_computing),
    )


def cores_per_rank(state: SteadyState) -> float:
    return (state.cores or 1) / max(1, state.ranks_on_host)


def _best_workers(state: SteadyState, workers: int, needed: int | None, *, is_computing: bool) -> int:
    """Return how many workers keep up, as far as the cores allow it."""
    cores = max(1, math.floor(cores_per_rank(state)))
    if needed is None:
        needed = cores if workers > cores else max(1, 2 * workers)
    limit = cores if is_computing else min(_WAITING_WORKERS_PER_CORE * cores, _MAX_WORKERS)
    return max(1, min(needed, limit))


def _computing(state: SteadyState, workers: int, wait_s: float, compute_s: float) -> float | None:
    used, step_s = state.cores_used, state.lead.step_s
    if used is None or not wait_s or state.is_starved:
        return None
    used /= state.ranks_on_host
    if not workers:
        # The rank makes the batches itself, and takes a core at least while it computes.
        return float(np.clip((used * step_s - compute_s) / wait_s, 0, 1))
    processes = min(workers, (state.cores or workers) / state.ranks_on_host)
    return float(np.clip((used - compute_s / step_s) / max(processes, 0.5), 0, 1))


def _starts_share(state: SteadyState) -> float:
    """Return the share of the wait in the few steps that wait far longer than others."""
    waits = state.lead.phase_rows_s(StepPhase.DATA_WAIT) * state.lead.counts
    if len(waits) < 4 or not waits.sum():
        return 0.0
    is_start = waits > max(_START_TIMES * float(np.median(waits)), 0.3 * state.lead.step_s)
    return float(waits[is_start].sum() / waits.sum()) if is_start.mean() <= _MAX_START_ROWS else 0.0
