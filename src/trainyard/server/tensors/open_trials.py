"""The trials that the reading process has open, and what it answers about them."""

import logging
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainyard.formats.patterns import LinePattern, TooSlow
from trainyard.formats.tensors.contract import Mode, TensorInfo
from trainyard.formats.tensors.errors import MissingCollectionFiles
from trainyard.formats.tensors.recordings import layout
from trainyard.formats.tensors.statistics import reductions
from trainyard.formats.tensors.trials.trial import Trial, create_trial
from trainyard.foundation.errors import InvalidRequest, NotFound, TrainyardError
from trainyard.foundation.sources import ByteSource
from trainyard.server.tensors.bounded_source import MAX_UNREADABLE, BoundedSource, describe_error
from trainyard.server.tensors.contract import (
    GridAnswer,
    GridQuestion,
    HistogramsAnswer,
    HistogramsQuestion,
    KnownTensor,
    KnownTensors,
    StepChoice,
    TensorChoice,
    TensorsQuestion,
    ValuesAnswer,
    ValuesQuestion,
)

MAX_OPEN = 4
# The cells of one answer: tensors x groups of steps.
MAX_CELLS = 4_000_000
# The saved steps that an answer lists.
MAX_SAVED_STEPS = 1000

_NOTHING_YET = "The program has recorded no tensors yet."
_VALUE = "value"


@dataclass(frozen=True, slots=True)
class TrialReply:
    """An answer with its blobs by name."""

    answer: KnownTensors | GridAnswer | HistogramsAnswer | ValuesAnswer
    blobs: Mapping[str, bytes] = field(default_factory=dict, repr=False)


class OpenTrials:
    """A few trials, most recently used last. `connect` returns the source of a trial by its location."""

    def __init__(self, connect: Callable[[str], ByteSource]) -> None:
        self._connect = connect
        self._open: OrderedDict[str, _OpenTrial] = OrderedDict()

    def answer(self, place: str, question: Any) -> TrialReply:
        """Answer a question about the trial at a location.

        A file that cannot be read is left out, with a note, and the question asked again without it.
        """
        known = self._open.pop(place, None)
        if known is None or known.source.is_outgrown:
            known = _OpenTrial(BoundedSource(self._connect(place)))
        self._open[place] = known
        while len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)
        return known.answer(question)


class _OpenTrial:
    def __init__(self, source: BoundedSource) -> None:
        self.source = source
        self._trial: Trial | None = None
        self._warnings = _Warnings()

    def answer(self, question: Any) -> TrialReply:
        with self._warnings:
            for _ in range(MAX_UNREADABLE):
                try:
                    return self._answer(question)
                except (InvalidRequest, NotFound, EOFError):
                    raise
                except Exception as error:
                    # Whatever a program may have written there.
                    name = getattr(self.source.source, "last_read", "")
                    is_bulk = name.endswith((layout.SEGMENT_SUFFIX, layout.MANIFEST_SUFFIX, layout.ENDED))
                    if not is_bulk or name in self.source.unreadable:
                        raise
                    self.source.leave_out(name, describe_error(error))
                    self._trial = None
        names = ", ".join(list(self.source.unreadable)[:3])
        raise InvalidRequest(f"Too many files of {self.source.place} cannot be read, such as {names}.")

    def _answer(self, question: Any) -> TrialReply:
        trial = self._refresh()
        notes = [*self.source.notes(), *self._warnings.texts]
        if trial is None:
            return TrialReply(_nothing(question, notes))
        with trial.no_refresh():
            return _ANSWERS[type(question)](trial, question, notes)

    def _refresh(self) -> Trial | None:
        """Return the trial with what is new; None if there is none yet."""
        if self._trial is not None:
            self._trial.maybe_refresh()
            return self._trial
        self.source.workers = max(1, len(self.source.folders(layout.STEPS)))
        try:
            self._trial = create_trial(self.source)
        except MissingCollectionFiles:
            return None
        return self._trial


class _Warnings(logging.Handler):
    """Keeps what readers warn of while it is entered, such as damaged segments."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def __enter__(self) -> "_Warnings":
        logging.getLogger("trainyard.formats").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("trainyard.formats").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        why = getattr(record, "why", "")
        text = f"The file {getattr(record, 'file', '')} is damaged, and the rest of it is left out: {why}."
        if text not in self.texts and len(self.texts) < MAX_UNREADABLE:
            self.texts.append(text)


def _nothing(question: Any, notes: Sequence[str]) -> KnownTensors | GridAnswer:
    """Return the answer about a trial that does not exist."""
    said = notes or [_NOTHING_YET]
    if isinstance(question, TensorsQuestion):
        return KnownTensors(notes=said)
    if isinstance(question, GridQuestion):
        return GridAnswer(notes=said)
    raise NotFound("tensor", question.tensor)


def _list_tensors(trial: Trial, question: TensorsQuestion, notes: Sequence[str]) -> TrialReply:
    known, recordings = trial.tensors(), trial.recordings()
    names = list(_choose(known, question.choice))
    page = names[question.after : question.after + question.limit]
    measures = _measures(trial, page)
    steps, saved = trial.steps(known=True), trial.steps()
    tensors = [
        KnownTensor(
            name=name,
            kind=str(known[name].kind),
            shape=known[name].shape,
            dtype=known[name].dtype,
            collections=known[name].collections,
            module=known[name].module,
            whole_shape=known[name].whole_shape,
            workers=tuple(worker for worker, recording in recordings.items() if name in recording.tensors()),
            measures=tuple(measures.get(name, ())),
        )
        for name in page
    ]
    return TrialReply(
        KnownTensors(
            tensors=tensors,
            total=len(names),
            collections=dict(Counter(each for info in known.values() for each in info.collections)),
            kinds=dict(Counter(str(info.kind) for info in known.values())),
            workers=list(recordings),
            modes=[str(mode) for mode in trial.modes()],
            first_step=steps[0] if steps else -1,
            last_step=steps[-1] if steps else -1,
            steps=len(steps),
            saved_steps=_spaced(saved, MAX_SAVED_STEPS),
            saved_total=len(saved),
            has_ended=trial.loaded_all_steps,
            notes=notes,
        )
    )


def _read_grid(trial: Trial, question: GridQuestion, notes: Sequence[str]) -> TrialReply:
    worker = question.worker or next(iter(trial.workers()), "")
    if not worker:
        return TrialReply(GridAnswer(notes=[*notes, _NOTHING_YET]))
    known = trial.recordings()[worker].tensors() if worker in trial.recordings() else {}
    names = list(_choose(known, question.choice))
    if question.statistic not in reductions.STATISTICS:
        names = [name for name in names if _has(trial, known[name], question.statistic)]
    groups = max(1, min(question.max_groups, MAX_CELLS))
    page = names[question.after : question.after + min(question.limit, max(1, MAX_CELLS // groups))]
    steps = question.steps
    grid = trial.grid(
        page,
        question.statistic,
        max_groups=groups,
        mode=_mode(steps.mode),
        worker=worker,
        steps=_range(steps),
    )
    answer = GridAnswer(page, len(names), grid.first_steps.tolist(), grid.last_steps.tolist(), worker, notes=notes)
    cells = {"means": grid.means.tobytes(), "minima": grid.minima.tobytes(), "maxima": grid.maxima.tobytes()}
    return TrialReply(answer, {**cells, "contents": grid.contents.tobytes()})


def _read_histograms(trial: Trial, question: HistogramsQuestion, notes: Sequence[str]) -> TrialReply:
    steps = question.steps
    found = trial.distributions(
        question.tensor,
        max_steps=question.max_steps,
        mode=_mode(steps.mode),
        worker=question.worker or None,
        steps=_range(steps),
    )
    more = []
    if found.steps_left_out:
        shown = len(found.steps)
        more.append(f"{shown} of {shown + found.steps_left_out} steps with a distribution are shown, evenly spread.")
    if not len(found.steps):
        more.append(
            "There is no histogram and no saved value of this tensor in these steps. Save its collection, with a "
            "save_interval, to see its distribution."
        )
    answer = HistogramsAnswer(found.steps.tolist(), found.counts.shape[1], found.is_recorded, notes=[*notes, *more])
    return TrialReply(answer, {"edges": found.edges.tobytes(), "counts": found.counts.tobytes()})


def _read_values(trial: Trial, question: ValuesQuestion, notes: Sequence[str]) -> TrialReply:
    worker = question.worker or None
    tensor = trial.tensor(question.tensor)
    known = tensor.reduction_values(question.step, worker=worker)
    statistics = {f"abs_{word}" if is_abs else word: float(value) for (word, is_abs), value in known.items()}
    counts = trial.statistics(question.step, worker=worker).get(question.tensor, {})
    statistics |= {word: counts[word] for word in ("zeros", "nans", "infs") if word in counts}
    finite = {word: value if math.isfinite(value) else None for word, value in statistics.items()}
    found = trial.rectangle(
        question.tensor,
        question.step,
        worker=worker,
        first_row=question.first_row,
        first_column=question.first_column,
        rows=question.rows,
        columns=question.columns,
    )
    info = tensor.info
    if found is None:
        more = f"The values of this tensor were not saved in step {question.step}, only its statistics."
        return TrialReply(ValuesAnswer(info.shape, info.dtype, statistics=finite, notes=[*notes, more]))
    shown = found.values.shape
    answer = ValuesAnswer(
        found.shape,
        found.dtype,
        found.rows,
        found.columns,
        found.first_row,
        found.first_column,
        shown[0],
        shown[1],
        finite,
        notes=notes,
    )
    return TrialReply(answer, {"values": found.values.tobytes()})


_ANSWERS: Mapping[type, Callable[[Trial, Any, Sequence[str]], TrialReply]] = {
    TensorsQuestion: _list_tensors,
    GridQuestion: _read_grid,
    HistogramsQuestion: _read_histograms,
    ValuesQuestion: _read_values,
}


def _choose(known: Mapping[str, TensorInfo], choice: TensorChoice) -> Iterator[str]:
    wanted = set(choice.names)
    pattern = LinePattern(choice.pattern) if choice.pattern else None
    for name, info in known.items():
        if wanted and name not in wanted:
            continue
        if choice.collection and choice.collection not in info.collections:
            continue
        if choice.kind and choice.kind != info.kind:
            continue
        if pattern is not None and not _matches(pattern, name):
            continue
        yield name


def _matches(pattern: LinePattern, name: str) -> bool:
    try:
        return pattern.value(name) is not None
    except TooSlow as error:
        raise InvalidRequest(f'The regular expression takes too long for the name "{name}".') from error


def _measures(trial: Trial, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the words of the probes of tensors, from the last step of each worker."""
    wanted, found = set(names), dict[str, list[str]]()
    for recording in trial.recordings().values():
        if len(recording.index):
            table = recording.step(len(recording.index) - 1).table
            for measure in table.measures:
                name = table.tensors[measure.tensor].name
                if name in wanted and measure.probe.word not in found.setdefault(name, []):
                    found[name].append(measure.probe.word)
    return found


def _has(trial: Trial, info: TensorInfo, statistic: str) -> bool:
    """Whether a tensor has a statistic that only some have: the value of its one element, or a probe."""
    if statistic == _VALUE:
        return info.size == 1
    return statistic in _measures(trial, [info.name]).get(info.name, ())


def _mode(word: str) -> Mode:
    try:
        return Mode(word)
    except ValueError as error:
        raise InvalidRequest(f'"{word}" is not a mode; there are {", ".join(Mode)}.') from error


def _range(steps: StepChoice) -> tuple[int | None, int | None]:
    return steps.first, None if steps.last is None else steps.last + 1


def _spaced(steps: Sequence[int], most: int) -> list[int]:
    if len(steps) <= most:
        return list(steps)
    return [steps[round(place * (len(steps) - 1) / (most - 1))] for place in range(most)]


def answer_error(error: BaseException) -> dict[str, Any]:
    """Return an error as an answer, with the kind by which the yard raises it again."""
    if isinstance(error, NotFound):
        return {"error": error.message, "kind": "NotFound"}
    if isinstance(error, InvalidRequest):
        return {"error": error.message, "kind": "InvalidRequest"}
    if isinstance(error, TrainyardError):
        return {"error": error.message, "kind": "Unreadable"}
    return {"error": f"The tensors could not be read: {describe_error(error)}", "kind": "Unreadable"}
