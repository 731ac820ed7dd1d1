"""Waiting for data: a loader that computes too slowly, one that waits for its reads, or too many workers."""

from trainyard.formats.profiles.contract import HardwareMetric, StepPhase
from trainyard.insight.profiling.contract import LoaderFacts
from trainyard.insight.profiling.verdict.contract import Bottleneck, BottleneckKind
from trainyard.insight.profiling.verdict.detectors.bounds import describe_slowed_rest, speedup_without_phase
from trainyard.insight.profiling.verdict.loader_load import LoaderLoad, measure_loader
from trainyard.insight.profiling.verdict.steady_state import SteadyState
from trainyard.insight.profiling.verdict.wording import count, describe_cores, duration, percent, size

MIN_SHARE = 0.1
# Reads hold a loader up if processes wait for the disk for so much of the time, or if so much arrives while they wait.
_READ_WAIT_PERCENT, _READ_BYTES_S = 20.0, 1e7
# What is read this fast from a disk is hardly computed with.
_LARGE_READ_BYTES_S = 1e8


def find_data_wait(state: SteadyState) -> Bottleneck | None:
    """Return the bottleneck that the wait for data is due to."""
    wait = state.share(StepPhase.DATA_WAIT)
    share = state.idle_bound(wait)
    if wait < MIN_SHARE or share < MIN_SHARE:
        return None
    loader, load = state.loader, measure_loader(state)
    # The training itself is also quicker if nothing takes its cores meanwhile.
    bound = speedup_without_phase(state, StepPhase.DATA_WAIT)
    evidence = [
        f"In a step of {duration(state.step_s)}, the program waits {duration(state.phases_s[StepPhase.DATA_WAIT])} "
        f"({percent(wait)}) for its data."
    ]
    evidence += [*_loader_evidence(state, loader, load), *describe_slowed_rest(state, StepPhase.DATA_WAIT)]
    if loader is not None and _has_too_many_workers(state, loader, load):
        return Bottleneck(
            BottleneckKind.TOO_MANY_WORKERS,
            f"{count(loader.workers, 'data worker')} for {count(state.cores or 0, 'core')}: "
            f"the program waits for data {percent(wait)} of the time.",
            evidence,
            share,
            bound,
        )
    if (reading := _reading_evidence(state, load)) is not None:
        title = f"Reading: the program waits for data {percent(wait)} of the time, and the loader waits for its reads."
        return Bottleneck(BottleneckKind.READING, title, [*evidence, *reading], share, bound)
    title = f"Data loading: the program waits for data {percent(wait)} of the time."
    return Bottleneck(BottleneckKind.DATA_LOADING, title, evidence, share, bound)


def _has_too_many_workers(state: SteadyState, loader: LoaderFacts, load: LoaderLoad) -> bool:
    cores = (state.cores or 0) / state.ranks_on_host
    if not cores or loader.workers <= max(cores, 1):
        return False
    # Workers that wait for their reads may be many.
    if load.is_computing and load.are_cores_short:
        return True
    if load.fetch_s is not None and not _are_workers_idle(loader, load):
        return False
    # What they make is not what the program waits for: they are started, hand batches over, and take turns on cores.
    return load.starts_workers_often or (load.needed_workers is not None and load.needed_workers <= cores)


def _loader_evidence(state: SteadyState, loader: LoaderFacts | None, load: LoaderLoad) -> list[str]:
    if loader is None:
        return []
    maker = count(loader.workers, "worker") if loader.workers else "no workers, so the program makes the batches itself"
    found = [f"The loader of {loader.name} has {maker}."]
    if load.fetch_s is not None and load.needed_workers is not None:
        compute_s = state.lead.step_s - state.lead.phases_s[StepPhase.DATA_WAIT]
        found.append(
            f"It takes {duration(load.fetch_s)} to make a batch and {duration(compute_s)} to compute a step, so "
            f"{count(load.needed_workers, 'worker')} {'keeps' if load.needed_workers == 1 else 'keep'} up."
        )
    if load.starts_workers_often:
        found.append(
            f"{percent(load.starts_share)} of the wait is in a few steps: the workers are started again for each epoch."
        )
    elif _are_workers_idle(loader, load):
        found.append(
            "There are more, so it waits for something else: for workers to start, for a core, or for batches to be "
            "handed over."
        )
    found += describe_cores(state.cores_used, state.cores)
    if load.computing is not None and not load.is_computing:
        found.append(
            f"While they make batches, processes use only {percent(load.computing)} of a core each: they mostly wait."
        )
    return found


def _are_workers_idle(loader: LoaderFacts, load: LoaderLoad) -> bool:
    return load.needed_workers is not None and load.needed_workers < loader.workers and not load.are_workers_busy


def _reading_evidence(state: SteadyState, load: LoaderLoad) -> list[str] | None:
    io_wait = state.mean(HardwareMetric.IO_WAIT_PERCENT, "total") or 0.0
    pressure = state.mean(HardwareMetric.PRESSURE_SOME_PERCENT, "io") or 0.0
    read = state.mean(HardwareMetric.JOB_READ_BYTES_S) or 0.0
    received = state.mean(HardwareMetric.NETWORK_RECEIVED_BYTES_S) or 0.0
    if load.starts_workers_often or (load.is_computing and load.computing is not None):
        return None
    waits = max(io_wait, pressure) >= _READ_WAIT_PERCENT
    arrives = max(read, received) >= _READ_BYTES_S
    # Other jobs may wait for the disk too, so this one has to read something.
    if load.computing is None:
        is_reading = (waits and arrives) or max(read, received) >= _LARGE_READ_BYTES_S
    else:
        is_reading = arrives or (waits and max(read, received) > 0)
    if not is_reading:
        return None
    where, rate = ("disk", read) if read >= received else ("network", received)
    found = [f"{size(rate)} per second arrive from the {where}."]
    if waits:
        found.append(f"Processes wait for the disk {max(io_wait, pressure):.0f} % of the time.")
    return found
