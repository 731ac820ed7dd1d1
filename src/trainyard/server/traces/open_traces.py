"""The traces that the reading process has open, and what it answers about them."""

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from trainyard.formats.profiles.traces.cache import TraceCache
from trainyard.formats.profiles.traces.contract import Trace
from trainyard.formats.profiles.traces.reader import read_trace
from trainyard.insight.profiling.report.labels import ROLES
from trainyard.insight.profiling.traces.collectives import CollectiveCost
from trainyard.insight.profiling.traces.gpus import GpuUse
from trainyard.insight.profiling.traces.kernels import KernelCost
from trainyard.insight.profiling.traces.memory import DeviceMemory
from trainyard.insight.profiling.traces.memory_levels import find_memory_levels
from trainyard.insight.profiling.traces.operators import OperatorCost
from trainyard.insight.profiling.traces.timeline import SliceDetails, Timeline, TimelineSlice
from trainyard.insight.profiling.traces.trace_profile import TraceProfile, profile_trace
from trainyard.server.traces.contract import (
    PartAnswer,
    PartQuestion,
    SearchAnswer,
    SearchQuestion,
    SliceAnswer,
    SliceQuestion,
    SummaryQuestion,
    TraceSummary,
)

# A trace of a million events has about 150 MB of tables and lanes.
MAX_OPEN_EVENTS = 6_000_000
MAX_OPEN = 8
# Points of a curve of memory, and steps whose roles are told.
_POINTS, _STEPS = 600, 500
_MAX_HELD = 30
_MAX_TEXT = 2000


class UnreadTrace(Exception):
    """The tables of a trace are not here, and neither is the trace."""


@dataclass(frozen=True, slots=True)
class TraceReply:
    """An answer with its blobs by name."""

    answer: TraceSummary | PartAnswer | SearchAnswer | SliceAnswer
    blobs: Mapping[str, bytes] = field(default_factory=dict, repr=False)


class OpenTraces:
    """A few traces, most recently used last, with the tables of more in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._cache = folder, TraceCache(folder)
        self._open: OrderedDict[str, _OpenTrace] = OrderedDict()

    def answer(self, trace_id: str, path: str, question: Any) -> TraceReply:
        """Answer a question about a trace, which is at the path if it has not been read before."""
        known = self._open.pop(trace_id, None) or _OpenTrace(self._load(trace_id, path))
        self._open[trace_id] = known
        while len(self._open) > 1 and (len(self._open) > MAX_OPEN or self._open_events() > MAX_OPEN_EVENTS):
            self._open.popitem(last=False)
        return known.answer(question)

    def _load(self, trace_id: str, path: str) -> Trace:
        kept = self._cache.load(trace_id)
        if kept is not None:
            # What was asked for last is removed last.
            with suppress(OSError):
                os.utime(self._folder / f"{trace_id}.trace")
            return kept
        if not path:
            raise UnreadTrace
        with Path(path).open("rb") as file:
            trace = read_trace(file)
        with suppress(OSError):
            self._cache.store(trace_id, trace)
        return trace

    def _open_events(self) -> int:
        return sum(len(each.trace.events) for each in self._open.values())


class _OpenTrace:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @cached_property
    def timeline(self) -> Timeline:
        return Timeline(self.trace)

    @cached_property
    def profile(self) -> TraceProfile:
        return profile_trace(self.trace)

    def answer(self, question: Any) -> TraceReply:
        match question:
            case SummaryQuestion():
                return self._summarize(question)
            case PartQuestion():
                return self._cut(question)
            case SearchQuestion():
                return self._search(question)
            case SliceQuestion():
                return TraceReply(SliceAnswer(_details(self.timeline.describe(question.number))))
        raise AssertionError(f"{question!r} is no question")

    def _cut(self, question: PartQuestion) -> TraceReply:
        part = self.timeline.cut(
            question.first_ns, question.last_ns, resolution_ns=question.resolution_ns, most=question.most
        )
        names = ("lanes", "depths", "starts", "durations", "names", "roles", "counts", "numbers")
        blobs = {name: getattr(part, name).tobytes() for name in names}
        return TraceReply(PartAnswer(part.resolution_ns, list(part.texts)), blobs)

    def _search(self, question: SearchQuestion) -> TraceReply:
        found = self.timeline.find(question.text, after=question.after, most=question.most)
        return TraceReply(SearchAnswer([_slice(each) for each in found.slices], found.total, found.total_ns))

    def _summarize(self, question: SummaryQuestion) -> TraceReply:
        trace, profile, timeline = self.trace, self.profile, self.timeline
        most = question.most
        blobs: dict[str, bytes] = {}
        has_device = profile.has_device
        functions = timeline.list_python_functions()
        summary = TraceSummary(
            started_us=timeline.start_ns // 1000 if trace.is_unix_time else None,
            duration_ns=timeline.end_ns - timeline.start_ns,
            producer=trace.producer,
            host=trace.host,
            events=len(trace.events),
            slices=len(timeline),
            lanes=[
                {
                    "Name": each.name,
                    "Group": each.group,
                    "IsDevice": each.is_device,
                    "Rows": each.rows,
                    "SliceCount": each.slices,
                }
                for each in timeline.lanes
            ],
            steps=list(_steps(profile, timeline.start_ns)),
            roles=_roles(profile),
            operators=_operators(profile.operators, most, has_device=has_device),
            operator_count=len(profile.operators),
            shapes=_operators(profile.operators_by_shape, most, has_device=has_device),
            shape_count=len(profile.operators_by_shape),
            kernels=[_kernel(each) for each in profile.kernels[:most]],
            kernel_count=len(profile.kernels),
            python=[
                {
                    "Name": each.name,
                    "Calls": each.calls,
                    "TotalSeconds": each.total_ns / 1e9,
                    "SelfSeconds": each.self_ns / 1e9,
                }
                for each in functions[:most]
            ],
            python_count=len(functions),
            memory=[
                _memory(each, number, timeline.start_ns, most, blobs)
                for number, each in enumerate(profile.memory)
                if len(each.curve.times_us)
            ],
            collectives=[_collective(each) for each in profile.collectives[:most]],
            exposed_communication=profile.overlap.exposed_share if profile.collectives else None,
            gpus=[_gpu(each) for each in profile.gpus],
            rank=trace.distributed.rank if trace.distributed else None,
            world_size=trace.distributed.world_size if trace.distributed else 1,
            is_complete=trace.is_complete,
            notes=list(dict.fromkeys(profile.notes)),
        )
        return TraceReply(summary, blobs)


def _steps(profile: TraceProfile, origin_ns: int) -> Iterator[Mapping[str, Any]]:
    windows = profile.windows
    if not windows.are_steps:
        return
    for number in range(min(len(windows), _STEPS)):
        times = profile.roles.times_ns[number]
        yield {
            "Number": int(windows.numbers[number]),
            "Start": int(windows.starts_ns[number]) - origin_ns,
            "End": int(windows.ends_ns[number]) - origin_ns,
            "RoleSeconds": {label: float(times[role]) / 1e9 for role, label in ROLES.items() if times[role]},
        }


def _roles(profile: TraceProfile) -> Sequence[Mapping[str, Any]]:
    if not len(profile.windows):
        return ()
    shares, means = profile.roles.shares, profile.roles.mean_s
    return [
        {"Name": label, "MeanSeconds": means[role], "Share": shares[role]}
        for role, label in ROLES.items()
        if shares[role]
    ]


def _operators(costs: Sequence[OperatorCost], most: int, *, has_device: bool) -> Sequence[Mapping[str, Any]]:
    ordered = costs if has_device else sorted(costs, key=lambda each: -each.host_self_s)
    return [
        {
            "Name": each.name,
            "Shape": _text(each.shape),
            "Calls": each.calls,
            "HostSelfSeconds": each.host_self_s,
            "HostTotalSeconds": each.host_total_s,
            "DeviceSelfSeconds": each.device_self_s,
            "DeviceTotalSeconds": each.device_total_s,
            "TensorCoreShare": each.tensor_core_self_share if each.can_use_tensor_cores else None,
        }
        for each in ordered[:most]
    ]


def _kernel(each: KernelCost) -> Mapping[str, Any]:
    return {
        "Name": each.name,
        "Calls": each.calls,
        "TotalSeconds": each.total_s,
        "MeanSeconds": each.mean_s,
        "MaxSeconds": each.max_s,
        "MinSeconds": each.min_s,
        "BlocksPerMultiprocessor": each.blocks_per_sm or None,
        "OccupancyPercent": each.occupancy_percent or None,
        "UsesTensorCores": each.uses_tensor_cores,
    }


def _collective(each: CollectiveCost) -> Mapping[str, Any]:
    return {
        "Name": each.name,
        "Calls": each.calls,
        "TotalBytes": each.total_bytes or None,
        "TotalSeconds": each.total_s,
        "MeanSeconds": each.mean_s,
        "MaxSeconds": each.max_s,
        "BytesPerSecond": each.bytes_per_s or None,
    }


def _gpu(each: GpuUse) -> Mapping[str, Any]:
    return {
        "Device": each.device,
        "Name": each.name,
        "Utilization": each.utilization,
        "MultiprocessorEfficiency": each.sm_efficiency,
        "Occupancy": each.occupancy,
        "TensorCoreShare": each.tensor_core_share,
    }


def _memory(memory: DeviceMemory, number: int, origin_ns: int, most: int, blobs: dict[str, bytes]) -> Mapping[str, Any]:
    """Describe the memory of a device, and add its curve to the blobs: the highest level of each stretch of time."""
    curve = memory.curve
    levels = find_memory_levels(curve, origin_ns=origin_ns, points=_POINTS)
    blobs[f"{number}.times"] = levels.times_ns.tobytes()
    blobs[f"{number}.allocated"] = levels.allocated_bytes.tobytes()
    blobs[f"{number}.reserved"] = levels.reserved_bytes.tobytes()
    held = sorted(memory.held_at_peak.items(), key=lambda item: -item[1])[:_MAX_HELD]
    return {
        "Device": memory.device,
        "PeakBytes": curve.peak_bytes,
        "PeakAt": curve.peak_at_us * 1000 - origin_ns,
        "HeldAtPeak": [{"Name": name, "SizeInBytes": size} for name, size in held],
        "Operators": [
            {
                "Name": each.name,
                "Calls": each.calls,
                "Allocations": each.allocations,
                "SelfAllocatedBytes": each.self_allocated_bytes,
                "SelfIncreaseBytes": each.self_increase_bytes,
                "AllocatedBytes": each.allocated_bytes,
                "IncreaseBytes": each.increase_bytes,
            }
            for each in memory.operators[:most]
        ],
    }


def _slice(each: TimelineSlice) -> Mapping[str, Any]:
    return {
        "Number": each.number,
        "Name": each.name,
        "Lane": each.lane,
        "Depth": each.depth,
        "Start": each.start_ns,
        "Duration": each.duration_ns,
    }


def _details(found: SliceDetails) -> Mapping[str, Any]:
    return {
        "Slice": _slice(found.slice),
        "Kind": found.kind,
        "Category": found.category,
        "SelfDuration": found.self_ns,
        "Parents": [_slice(each) for each in found.parents],
        "Related": [{"Relation": each.relation, "Slice": _slice(each.slice)} for each in found.related],
        "Facts": [{"Name": name, "Value": _text(value)} for name, value in found.facts],
        "SameNameCount": found.same_name_count,
        "SameNameDuration": found.same_name_ns,
    }


def _text(value: str) -> str:
    """Return a text of a trace at a length that a page can show."""
    return value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]} …"
