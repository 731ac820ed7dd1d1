"""Profiles of Python functions that a job recorded: by step, by time, and by mode."""

import json
import pstats
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from trainyard._sdk.connection import Api
from trainyard._sdk.profiling.readers import s3_source
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.sources import ByteSource, FolderSource

CPROFILE_NAME, PYINSTRUMENT_NAME = "cprofile", "pyinstrument"
CPROFILE_STATS_FILENAME = "python_stats"
PYINSTRUMENT_JSON_FILENAME, PYINSTRUMENT_HTML_FILENAME = "python_stats.json", "python_stats.html"
_PROFILERS = {
    CPROFILE_STATS_FILENAME: CPROFILE_NAME,
    PYINSTRUMENT_JSON_FILENAME: PYINSTRUMENT_NAME,
    PYINSTRUMENT_HTML_FILENAME: PYINSTRUMENT_NAME,
}
_FOLDERS = {CPROFILE_NAME: "cProfile", PYINSTRUMENT_NAME: "pyinstrument"}
_MAX_FILE = 256 << 20
_NO_NAMES = ("", ".", "..")
_NO_STEP = "*"

Stats = TypeVar("Stats")


class PythonProfileModes(IntEnum):
    """What the program did when a profile began or ended."""

    TRAIN = 1
    EVAL = 2
    PREDICT = 3
    GLOBAL = 4
    PRE_STEP_ZERO = 5
    POST_HOOK_CLOSE = 6


class StepPhase(Enum):
    """The part of a step in which a profile began or ended."""

    START = "start"
    STEP_START = "stepstart"
    FORWARD_PASS_END = "forwardpassend"
    STEP_END = "stepend"
    END = "end"


class Metrics(Enum):
    """What functions are sorted by."""

    TOTAL_TIME = "tottime"
    CUMULATIVE_TIME = "cumtime"
    PRIMITIVE_CALLS = "pcalls"
    TOTAL_CALLS = "ncalls"


class StepPythonProfileStats:
    """One recorded profile: its file, and when it was recorded. Times are microseconds since 1970.

    Args:
        framework: The framework of the program.
        profiler_name: The profiler: `cprofile` or `pyinstrument`.
        node_id: The process and the instance.
        stats_dir: The name of the folder, which says when the profile began and ended.
        stats_path: Path of the file.
    """

    def __init__(self, framework: str, profiler_name: str, node_id: str, stats_dir: str, stats_path: str) -> None:
        start, end = (each.split("-") for each in stats_dir.split("_"))
        self.profiler_name, self.framework, self.node_id = profiler_name, framework, node_id
        self.start_mode, self.start_step, self.start_phase, self.start_time_since_epoch_in_micros = _moment(start, -1)
        self.end_mode, self.end_step, self.end_phase, self.end_time_since_epoch_in_micros = _moment(end, float("inf"))
        self.stats_path = stats_path

    def __repr__(self) -> str:
        return repr(vars(self))

    def has_start_and_end_mode(self, start_mode: PythonProfileModes, end_mode: PythonProfileModes) -> bool:
        """Return whether the profile began and ended in these modes.

        Args:
            start_mode: The mode in which it began.
            end_mode: The mode in which it ended.
        """
        return (self.start_mode, self.end_mode) == (start_mode, end_mode)

    def in_time_interval(self, start_us: float, end_us: float) -> bool:
        """Return whether the profile began or ended in a period.

        Args:
            start_us: When the period begins, in microseconds since 1970.
            end_us: When it ends.
        """
        began, ended = self.start_time_since_epoch_in_micros, self.end_time_since_epoch_in_micros
        return start_us <= began <= end_us or start_us <= ended <= end_us

    def in_step_interval(self, start_step: int, end_step: int, start_phase: StepPhase, end_phase: StepPhase) -> bool:
        """Return whether the profile lies between two moments of steps.

        Args:
            start_step: Number of the first step.
            end_step: Number of the last step.
            start_phase: The part of the first step from which on profiles count.
            end_phase: The part of the last step up to which they count.
        """
        if start_step > self.start_step or end_step < self.end_step:
            return False
        is_later = start_phase in (StepPhase.STEP_END, StepPhase.FORWARD_PASS_END) and self.start_phase != start_phase
        is_earlier = end_phase is StepPhase.STEP_START and self.end_phase != end_phase
        return not (start_step == self.start_step and is_later) and not (end_step == self.end_step and is_earlier)

    def has_pre_step_zero_profile_stats(self) -> bool:
        """Return whether the profile is of the time before the first step."""
        return self.start_phase is StepPhase.START

    def has_post_hook_close_profile_stats(self) -> bool:
        """Return whether the profile is of the time after the last step."""
        return self.end_phase is StepPhase.END

    def has_node_id(self, node_id: str) -> bool:
        """Return whether the profile is of a process.

        Args:
            node_id: The process and the instance.
        """
        return self.node_id == node_id


class cProfileFunctionStats:  # noqa: N801 - AWS's name
    """What cProfile measured of one function; times are seconds.

    Args:
        key: File, line and name, as pstats has them.
        value: Calls, times and callers, as pstats has them.
    """

    def __init__(self, key: Any, value: Any) -> None:
        self.function_name = _function_name(key)
        self.prim_calls, self.total_calls, self.total_time, self.cumulative_time, callers = value
        self.callers = [_function_name(each) for each in callers]

    def __repr__(self) -> str:
        return repr(
            {
                "function name": self.function_name,
                "# of primitive calls": self.prim_calls,
                "# of total calls": self.total_calls,
                "total time": self.total_time,
                "cumulative time": self.cumulative_time,
            }
        )


class cProfileStats:  # noqa: N801 - AWS's name
    """What cProfile measured in some steps together.

    Args:
        ps: The statistics of the standard library.
    """

    def __init__(self, ps: pstats.Stats) -> None:
        self.ps = ps
        stats: dict[Any, Any] = vars(ps)["stats"]
        self.function_stats_list = [cProfileFunctionStats(key, value) for key, value in stats.items()]

    def print_top_n_functions(self, by: Metrics, n: int = 10) -> None:
        """Print the functions with the most of something.

        Args:
            by: What to sort by.
            n: How many functions to print.

        Raises:
            InvalidRequest: `by` is not a Metrics.
        """
        if not isinstance(by, Metrics):
            raise InvalidRequest(f"by is {by!r}; it must be a Metrics, such as Metrics.CUMULATIVE_TIME.")
        self.ps.sort_stats(by.value).print_stats(n)

    def get_function_stats(self) -> list[cProfileFunctionStats]:
        """Return what was measured of each function."""
        return self.function_stats_list


class PyinstrumentStepStats:
    """What pyinstrument recorded in a step.

    Args:
        html_file_path: Path of the page that shows it.
        json_stats: The recorded stacks.
    """

    def __init__(self, html_file_path: str, json_stats: Any) -> None:
        self.html_file_path, self.json_stats = html_file_path, json_stats


_Choice = Callable[[StepPythonProfileStats], bool]


class PythonProfileAnalysis(Generic[Stats]):
    """The base of the analyses of recorded profiles.

    Args:
        local_profile_dir: Folder of the profiles of one profiler; with `s3_path`, an existing folder to download to.
        s3_path: The `s3://` location of the profile of a job. Default: nothing is downloaded.
        api: The API client that downloads. Default: that of a new `Session()`.

    Raises:
        InvalidRequest: The folder does not exist.
    """

    name = ""

    def __init__(
        self, local_profile_dir: str = "/tmp/python_stats", s3_path: str | None = None, *, api: Api | None = None
    ) -> None:
        if not Path(local_profile_dir).is_dir():
            raise InvalidRequest(f'There is no folder "{local_profile_dir}".')
        self.notes: list[str] = []
        self._folder = Path(local_profile_dir)
        self._source: ByteSource | None = s3_source(s3_path, api) if s3_path else None
        self.python_profile_stats: list[StepPythonProfileStats] = []
        self._refresh(True)

    def fetch_profile_stats_by_step(
        self,
        start_step: int,
        end_step: int | None = None,
        mode: PythonProfileModes = PythonProfileModes.TRAIN,
        start_phase: StepPhase = StepPhase.STEP_START,
        end_phase: StepPhase = StepPhase.STEP_END,
        node_id: str = "any",
        refresh_stats: bool = True,
    ) -> Stats | None:
        """Return the profiles of some steps; None if there are none.

        Args:
            start_step: Number of the first step.
            end_step: Number of the last step. Default: the first.
            mode: The mode of the steps.
            start_phase: The part of the first step from which on profiles count.
            end_phase: The part of the last step up to which they count.
            node_id: The process; `any` for the first one.
            refresh_stats: Whether to look for new profiles before.
        """
        last = start_step if end_step is None else end_step

        def is_chosen(each: StepPythonProfileStats) -> bool:
            is_inside = each.in_step_interval(start_step, last, start_phase, end_phase)
            return is_inside and each.has_start_and_end_mode(mode, mode)

        return self._fetch(is_chosen, node_id, refresh_stats)

    def fetch_profile_stats_by_time(
        self,
        start_time_since_epoch_in_secs: float,
        end_time_since_epoch_in_secs: float,
        node_id: str = "any",
        refresh_stats: bool = True,
    ) -> Stats | None:
        """Return the profiles that began or ended in a period; None if there are none.

        Args:
            start_time_since_epoch_in_secs: When the period begins, in seconds since 1970.
            end_time_since_epoch_in_secs: When it ends.
            node_id: The process; `any` for the first one.
            refresh_stats: Whether to look for new profiles before.
        """
        start_us, end_us = start_time_since_epoch_in_secs * 1e6, end_time_since_epoch_in_secs * 1e6
        return self._fetch(lambda each: each.in_time_interval(start_us, end_us), node_id, refresh_stats)

    def fetch_profile_stats_between_modes(
        self,
        start_mode: PythonProfileModes,
        end_mode: PythonProfileModes,
        node_id: str = "any",
        refresh_stats: bool = True,
    ) -> Stats | None:
        """Return the profiles that began in one mode and ended in another; None if there are none.

        Args:
            start_mode: The mode in which they began.
            end_mode: The mode in which they ended.
            node_id: The process; `any` for the first one.
            refresh_stats: Whether to look for new profiles before.
        """
        return self._fetch(lambda each: each.has_start_and_end_mode(start_mode, end_mode), node_id, refresh_stats)

    def fetch_pre_step_zero_profile_stats(self, node_id: str = "any", refresh_stats: bool = True) -> Stats | None:
        """Return the profiles of the time before the first step; None if there are none.

        Args:
            node_id: The process; `any` for the first one.
            refresh_stats: Whether to look for new profiles before.
        """
        return self._fetch(StepPythonProfileStats.has_pre_step_zero_profile_stats, node_id, refresh_stats)

    def fetch_post_hook_close_profile_stats(self, node_id: str = "any", refresh_stats: bool = True) -> Stats | None:
        """Return the profiles of the time after the last step; None if there are none.

        Args:
            node_id: The process; `any` for the first one.
            refresh_stats: Whether to look for new profiles before.
        """
        return self._fetch(StepPythonProfileStats.has_post_hook_close_profile_stats, node_id, refresh_stats)

    def list_profile_stats(self, refresh_stats: bool = True) -> Any:
        """Return a dataframe with a row for each recorded profile.

        Args:
            refresh_stats: Whether to look for new profiles before.
        """
        from trainyard._sdk.profiling.frames import frame_of

        self._refresh(refresh_stats)
        if not self.python_profile_stats:
            _say("No stats were found!")
        rows = [vars(each) for each in self.python_profile_stats]
        modes = ("start_mode", "end_mode")
        return frame_of([row | {name: _mode_word(row[name]) for name in modes} for row in rows])

    def list_available_node_ids(self, refresh_stats: bool = True) -> list[str]:
        """Return the processes that have profiles.

        Args:
            refresh_stats: Whether to look for new profiles before.
        """
        self._refresh(refresh_stats)
        return sorted({each.node_id for each in self.python_profile_stats})

    def _aggregate(self, stats: Sequence[StepPythonProfileStats]) -> Stats:
        raise NotImplementedError

    def _fetch(self, is_chosen: _Choice, node_id: str, refreshes: bool) -> Stats | None:
        self._refresh(refreshes)
        own = self.python_profile_stats
        if node_id == "any" and own:
            node_id = own[0].node_id
        chosen = [each for each in own if each.node_id == node_id and is_chosen(each)]
        if not chosen:
            _say("No stats were found for the requested interval!")
            return None
        return self._aggregate(chosen)

    def _refresh(self, refreshes: bool) -> None:
        if refreshes:
            found = self._download(self._source) if self._source else self._find()
            own = (each for each in found if each.profiler_name == self.name)
            self.python_profile_stats = sorted(own, key=lambda x: (x.start_time_since_epoch_in_micros, x.node_id))

    def _find(self) -> list[StepPythonProfileStats]:
        """Return the profiles in the folder, which is that of a profiler in that of a framework."""
        folder, found = FolderSource(self._folder), []
        for node in folder.folders():
            for window in folder.folders(node):
                for entry in folder.entries(f"{node}/{window}"):
                    path = self._folder / node / window / entry.name
                    found += self._stats(self._folder.resolve().parent.name, node, window, path)
        return found

    def _download(self, source: ByteSource) -> list[StepPythonProfileStats]:
        """Download the profiles of all frameworks and profilers, and return them."""
        target = self._folder / "python_stats"
        shutil.rmtree(target, ignore_errors=True)
        found = []
        for name in _profile_files(source):
            *_, framework, _profiler, node, window, file = name.split("/")
            path = target / node / window / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(source.read(name))
            found += self._stats(framework, node, window, path)
        return found

    def _stats(self, framework: str, node: str, window: str, path: Path) -> list[StepPythonProfileStats]:
        if path.name not in _PROFILERS:
            return []
        try:
            return [StepPythonProfileStats(framework, _PROFILERS[path.name], node, window, str(path))]
        except (ValueError, KeyError):
            self.notes.append(f"{path} is left out: the name of its folder is not that of a profile.")
            return []


class cProfileAnalysis(PythonProfileAnalysis[cProfileStats]):  # noqa: N801 - AWS's name
    """Reads what cProfile recorded.

    Args:
        local_profile_dir: Folder of the profiles of cProfile; with `s3_path`, an existing folder to download to.
        s3_path: The `s3://` location of the profile of a job. Default: nothing is downloaded.
        api: The API client that downloads. Default: that of a new `Session()`.
    """

    name = CPROFILE_NAME

    def fetch_profile_stats_by_training_phase(
        self, node_id: str = "any", refresh_stats: bool = True
    ) -> dict[tuple[PythonProfileModes, PythonProfileModes], cProfileStats]:
        """Return the profiles by the modes in which they began and ended.

        Args:
            node_id: The process; `any` for the first one.
            refresh_stats: Whether to look for new profiles before.
        """
        self._refresh(refresh_stats)
        pairs = dict.fromkeys((each.start_mode, each.end_mode) for each in self.python_profile_stats)
        found = {pair: self.fetch_profile_stats_between_modes(*pair, node_id, False) for pair in sorted(pairs)}
        return {pair: stats for pair, stats in found.items() if stats is not None}

    def fetch_profile_stats_by_job_phase(
        self, node_id: str = "any", refresh_stats: bool = True
    ) -> dict[str, cProfileStats]:
        """Return the profiles of the initialization, the training loop and the finalization.

        Args:
            node_id: The process; `any` for the first one.
            refresh_stats: Whether to look for new profiles before.
        """
        found: dict[str, cProfileStats] = {}
        loop = pstats.Stats()
        for (start, end), stats in self.fetch_profile_stats_by_training_phase(node_id, refresh_stats).items():
            if start is PythonProfileModes.PRE_STEP_ZERO:
                found["initialization"] = stats
            elif end is PythonProfileModes.POST_HOOK_CLOSE:
                found["finalization"] = stats
            else:
                loop.add(stats.ps)
        return found | {"training_loop": cProfileStats(loop)}

    def _aggregate(self, stats: Sequence[StepPythonProfileStats]) -> cProfileStats:
        together = pstats.Stats()
        for each in stats:
            try:
                together.add(each.stats_path)
            except (EOFError, ValueError, TypeError, OSError):
                self.notes.append(f"{each.stats_path} is left out: it cannot be read.")
        return cProfileStats(together)


class PyinstrumentAnalysis(PythonProfileAnalysis[list[PyinstrumentStepStats]]):
    """Reads what pyinstrument recorded.

    Args:
        local_profile_dir: Folder of the profiles of pyinstrument; with `s3_path`, an existing folder to download to.
        s3_path: The `s3://` location of the profile of a job. Default: nothing is downloaded.
        api: The API client that downloads. Default: that of a new `Session()`.
    """

    name = PYINSTRUMENT_NAME

    def _aggregate(self, stats: Sequence[StepPythonProfileStats]) -> list[PyinstrumentStepStats]:
        by_start: dict[float, dict[str, str]] = defaultdict(dict)
        for each in stats:
            by_start[each.start_time_since_epoch_in_micros][Path(each.stats_path).name] = each.stats_path
        found = []
        for files in by_start.values():
            try:
                recorded = json.loads(Path(files[PYINSTRUMENT_JSON_FILENAME]).read_bytes())
            except (KeyError, ValueError, OSError):
                self.notes.append(f"{', '.join(files.values())} cannot be read.")
                continue
            found.append(PyinstrumentStepStats(files.get(PYINSTRUMENT_HTML_FILENAME, ""), recorded))
        return found


def _profile_files(source: ByteSource) -> Iterator[str]:
    """Yield the names of the recorded profiles, as framework/<framework>/<profiler>/<process>/<window>/<file>."""
    for framework in source.folders("framework"):
        for profiler in (CPROFILE_NAME, PYINSTRUMENT_NAME):
            # AWS's library writes cProfile.
            for folder in dict.fromkeys((profiler, _FOLDERS[profiler])):
                above = f"framework/{framework}/{folder}"
                nodes = source.folders(above)
                for window in (f"{above}/{node}/{name}" for node in nodes for name in _below(source, above, node)):
                    names = (entry.name for entry in source.entries(window) if entry.size <= _MAX_FILE)
                    yield from (f"{window}/{name}" for name in names if name in _PROFILERS)


def _below(source: ByteSource, above: str, node: str) -> Sequence[str]:
    # A name is a part of a path on this machine.
    return [] if node in _NO_NAMES else [name for name in source.folders(f"{above}/{node}") if name not in _NO_NAMES]


def _moment(words: Sequence[str], no_step: float) -> tuple[PythonProfileModes, float, StepPhase, float]:
    """Return mode, step, part of the step and time of one end of a profile, as the name of its folder has them."""
    mode, step, phase, at_us = words
    by_word = {_mode_word(each): each for each in PythonProfileModes}
    return by_word[mode], no_step if step == _NO_STEP else int(step), StepPhase(phase), float(at_us)


def _mode_word(mode: PythonProfileModes) -> str:
    return mode.name.lower().replace("_", "")


def _function_name(key: Any) -> str:
    """Return the name as pstats prints it; that of a built-in function has no file."""
    file, line, name = key
    if (file, line) != ("~", 0):
        return f"{file}:{line}({name})"
    return f"{{{name[1:-1]}}}" if name.startswith("<") and name.endswith(">") else str(name)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
