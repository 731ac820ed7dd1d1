"""Reading a trial: steps, names, values and numbers, live and finished, of one worker and of many."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.unit.formats.tensors.runs import (
    COLLECTIONS,
    GRADIENT,
    LOSS,
    NOON,
    TABLE,
    WEIGHT,
    Clock,
    step_of,
    values_at,
    write_run,
)
from trainyard.formats.tensors.contract import Kind, Mode, Step, TensorInfo, TensorTable
from trainyard.formats.tensors.encoding.arrow_stream import Scanner, Schema, encode_schema
from trainyard.formats.tensors.errors import (
    InvalidWorker,
    MissingCollectionFiles,
    NoMoreData,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from trainyard.formats.tensors.recordings.trial_writer import SEGMENT_AGE, TrialWriter, mark_ended
from trainyard.formats.tensors.statistics.reductions import statistics_of
from trainyard.formats.tensors.trials.trial import StepState, Trial, create_trial
from trainyard.foundation.errors import Corrupt, InvalidRequest, NotFound, Unavailable
from trainyard.foundation.sources import FolderSource, SourceEntry


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """100 steps of one worker, the weight and the loss saved every 10."""
    write_run(tmp_path / "run")
    return create_trial(tmp_path / "run")


def test_steps_are_those_that_were_saved_and_all_others_are_known(trial: Trial) -> None:
    assert trial.name == "run"
    assert trial.steps() == list(range(0, 100, 10))
    assert trial.steps(known=True) == list(range(100))
    assert trial.tensor(WEIGHT).steps() == list(range(0, 100, 10))
    assert trial.tensor(GRADIENT).steps() == []
    assert trial.last_complete_step == 99
    assert trial.loaded_all_steps
    assert (trial.workers(), trial.num_workers, trial.modes()) == (["worker_0"], 1, [Mode.TRAIN])


def test_names_are_found_by_step_regex_and_collection(trial: Trial) -> None:
    assert trial.tensor_names() == [LOSS, WEIGHT]
    assert trial.tensor_names(known=True) == [LOSS, WEIGHT, GRADIENT]
    assert trial.tensor_names(step=10) == [LOSS, WEIGHT]
    assert trial.tensor_names(step=11) == []
    assert trial.tensor_names(step=11, known=True) == [LOSS, WEIGHT, GRADIENT]
    assert trial.tensor_names(regex="Loss") == [LOSS]
    assert trial.tensor_names(regex=["Loss", "^Net"]) == [LOSS, WEIGHT]
    assert trial.tensor_names(collection="losses") == [LOSS]
    assert trial.tensor_names(collection="weights", known=True) == [WEIGHT, GRADIENT]  # by the collection's regex
    assert trial.tensor_names(collection=COLLECTIONS[2], known=True) == [GRADIENT]
    assert trial.tensor_names(collection="nothing") == []
    assert trial.tensor_names(mode=Mode.EVAL) == []
    with pytest.raises(InvalidRequest, match="not by both"):
        trial.tensor_names(regex=".*", collection="losses")
    with pytest.raises(InvalidRequest, match="not a valid regular expression"):
        trial.tensor_names(regex="(")
    with pytest.raises(NoMoreData):
        trial.tensor_names(step=100)


def test_tensors_are_in_the_order_in_which_a_step_computes_them(trial: Trial) -> None:
    assert list(trial.tensors()) == [WEIGHT, LOSS, GRADIENT]
    assert trial.tensors()[WEIGHT].module == "fc"
    assert list(trial.collections()) == ["weights", "losses", "gradients"]
    assert trial.collection("weights") == COLLECTIONS[0]
    assert trial.collection("nothing") is None


def test_a_saved_tensor_comes_back_as_it_was(trial: Trial) -> None:
    tensor = trial.tensor(WEIGHT)
    assert np.array_equal(tensor.value(10), values_at(10, 0))
    assert tensor.value(10, Mode.TRAIN, "worker_0").shape == tensor.shape(10) == (2, 3)
    assert {step: value.tolist() for step, value in tensor.values().items()} == {
        step: values_at(step, 0).tolist() for step in range(0, 100, 10)
    }
    assert tensor.workers(10) == ["worker_0"]


def test_a_tensor_of_one_element_has_its_exact_value_at_every_step(trial: Trial) -> None:
    loss = trial.tensor(LOSS)
    assert loss.value(33) == np.float32(1 / 34)
    assert loss.value(33).shape == ()
    series = trial.series(LOSS)
    assert series.steps.tolist() == list(range(100))
    assert series.values.tolist() == [1 / (step + 1) for step in range(100)]


def test_the_error_for_an_unsaved_tensor_lists_its_statistics(trial: Trial) -> None:
    with pytest.raises(
        TensorUnavailableForStep, match=r"has no saved values in step 11.*mean.*save_raw_tensor"
    ) as told:
        trial.tensor(WEIGHT).value(11)
    assert told.value.has_reductions
    assert isinstance(told.value, NotFound)
    with pytest.raises(TensorUnavailable, match='"run" has no tensor "nothing"'):
        trial.tensor("nothing")
    with pytest.raises(NoMoreData, match="Step 100 of GLOBAL will not come"):
        trial.tensor(WEIGHT).value(100)
    with pytest.raises(InvalidWorker, match='no worker "worker_7"; it has worker_0'):
        trial.tensor(WEIGHT).value(10, worker="worker_7")
    assert not trial.has_tensor("nothing")


def test_reductions_follow_from_the_statistics_of_any_step(trial: Trial) -> None:
    values = values_at(11, 2).astype(np.float64)
    gradient = trial.tensor(GRADIENT)
    expected = {
        "min": values.min(),
        "max": values.max(),
        "mean": values.mean(),
        "std": values.std(),
        "variance": values.var(),
        "sum": values.sum(),
        "l1": np.abs(values).sum(),
        "l2": np.sqrt((values**2).sum()),
    }
    for word, wanted in expected.items():
        assert gradient.reduction_value(11, word) == pytest.approx(wanted, rel=1e-6, abs=1e-9)
    assert gradient.reduction_value(11, "mean", abs=True) == pytest.approx(np.abs(values).mean())
    assert gradient.reduction_value(11, "std", abs=True) == pytest.approx(np.abs(values).std(), rel=1e-5)
    assert gradient.reduction_values(11)["max", True] == pytest.approx(np.abs(values).max())
    with pytest.raises(TensorUnavailableForStep, match="has no reduction prod in step 11"):
        gradient.reduction_value(11, "prod")
    with pytest.raises(InvalidRequest, match='no reduction "median"'):
        gradient.reduction_value(11, "median")


def test_other_reductions_are_computed_from_the_values(trial: Trial) -> None:
    assert trial.tensor(WEIGHT).reduction_value(10, "prod") == 0.0
    assert trial.tensor(WEIGHT).reduction_value(10, "min", abs=True) == 0.0


def test_a_reduction_that_was_saved_on_its_own_is_found(tmp_path: Path) -> None:
    writer = TrialWriter(tmp_path, clock=Clock())
    writer.append(step_of(0, saved=(False, False, True)))
    writer.save_values(0, {f"smdebug/reductions/abs_min/{GRADIENT}": np.array(0.25, np.float32)})
    writer.close()
    tensor = create_trial(tmp_path).tensor(GRADIENT)
    assert tensor.reduction_value(0, "min", abs=True) == 0.25
    with pytest.raises(TensorUnavailableForStep):
        tensor.value(0)


def test_previous_steps_are_those_up_to_a_step(trial: Trial) -> None:
    assert trial.tensor(WEIGHT).prev_steps(35) == [0, 10, 20, 30]
    assert trial.tensor(WEIGHT).prev_steps(30, 2) == [20, 30]
    assert trial.tensor(WEIGHT).prev_steps(5, 3) == [0]


def test_a_series_has_every_statistic_and_every_measure(trial: Trial) -> None:
    assert trial.series(WEIGHT, "max").values.tolist() == [values_at(step, 0).max() for step in range(100)]
    assert trial.series(WEIGHT, "l2").values[7] == pytest.approx(np.linalg.norm(values_at(7, 0)))
    assert trial.series(WEIGHT, "update_ratio").values[50] == pytest.approx(0.05)
    with pytest.raises(InvalidRequest, match="has 6 elements"):
        trial.series(WEIGHT)
    with pytest.raises(InvalidRequest, match='"row_entropy" is neither a statistic nor a probe'):
        trial.series(WEIGHT, "row_entropy")


def test_a_loss_of_nan_is_a_value_and_a_tensor_that_was_left_out_has_none(tmp_path: Path) -> None:
    writer = TrialWriter(tmp_path, clock=Clock())
    writer.append(step_of(0))
    told = step_of(1)
    told.statistics[1] = statistics_of(np.array([np.nan]))
    writer.append(replace(told, scalars=np.array([np.nan])))
    writer.append(step_of(2, absent=[1]))
    writer.append(step_of(3))
    writer.close()
    trial = create_trial(tmp_path)
    series = trial.series(LOSS)
    assert series.steps.tolist() == [0, 1, 3]
    assert np.isnan(series.values).tolist() == [False, True, False]
    assert trial.series(LOSS, "nans").values.tolist() == [0, 1, 0]
    assert trial.tensor_names(step=2, known=True) == [WEIGHT, GRADIENT]
    with pytest.raises(TensorUnavailableForStep):
        trial.tensor(LOSS).value(2)


def test_modes_have_steps_of_their_own(tmp_path: Path) -> None:
    writer = TrialWriter(tmp_path, clock=Clock())
    order = [Mode.TRAIN, Mode.TRAIN, Mode.EVAL, Mode.TRAIN, Mode.EVAL]
    counts = dict.fromkeys(Mode, 0)
    for number, mode in enumerate(order):
        writer.append(step_of(number, mode=mode, mode_step=counts[mode], saved=(False, mode is Mode.EVAL, False)))
        counts[mode] += 1
    writer.close()
    trial = create_trial(tmp_path)
    assert trial.modes() == [Mode.TRAIN, Mode.EVAL]
    assert trial.steps(Mode.EVAL) == [0, 1]
    assert trial.steps(Mode.TRAIN) == []
    assert trial.steps(Mode.TRAIN, known=True) == [0, 1, 2]
    assert (trial.mode(4), trial.mode_step(4), trial.global_step(Mode.EVAL, 1)) == (Mode.EVAL, 1, 4)
    assert (trial.mode(9), trial.mode_step(9), trial.global_step(Mode.EVAL, 9)) == (None, None, None)
    assert trial.tensor_names(mode=Mode.EVAL) == [LOSS]
    assert trial.tensor_names(mode=Mode.TRAIN) == []
    assert trial.tensor(LOSS).value(1, Mode.EVAL) == np.float32(0.2)
    assert trial.tensor(LOSS).steps(Mode.EVAL) == [0, 1]
    series = trial.series(LOSS, mode=Mode.EVAL)
    assert (series.steps.tolist(), series.values.tolist()) == ([0, 1], [1 / 3, 1 / 5])
    assert trial.has_passed_step(1, Mode.EVAL) is StepState.AVAILABLE
    assert trial.has_passed_step(1, Mode.TRAIN) is StepState.UNAVAILABLE


def test_steps_outside_a_range_are_left_out(tmp_path: Path) -> None:
    write_run(tmp_path, 50)
    trial = create_trial(tmp_path, range_steps=(10, 30))
    assert trial.steps() == [10, 20]
    assert trial.series(LOSS).steps.tolist() == list(range(10, 30))
    assert trial.table().steps.tolist() == list(range(10, 30))
    with pytest.raises(StepUnavailable):
        trial.tensor(WEIGHT).value(30)
    assert create_trial(tmp_path, range_steps=(None, 10)).steps() == [0]
    assert create_trial(tmp_path, range_steps=(40, None)).steps() == [40]


def test_a_step_is_returned_as_recorded(trial: Trial) -> None:
    told = trial.step(20)
    wanted = step_of(20, saved=(True, True, False))
    for name in ("number", "mode", "mode_step", "at_us", "worker", "table", "lacks"):
        assert getattr(told, name) == getattr(wanted, name)
    for name in ("statistics", "measures", "scalars", "saved"):
        assert np.array_equal(getattr(told, name), getattr(wanted, name))
    assert list(told.values) == [WEIGHT]
    assert np.array_equal(told.values[WEIGHT], values_at(20, 0))
    assert "nothing" not in told.values
    assert [step.number for step in trial.read_steps(after=96)] == [97, 98, 99]
    assert trial.statistics(21)[WEIGHT]["max"] == values_at(21, 0).max()


def test_a_place_without_a_trial_is_said_to_have_none(tmp_path: Path) -> None:
    with pytest.raises(MissingCollectionFiles, match="There is no trial at"):
        create_trial(tmp_path / "nothing")
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        write_run(tmp_path / "late", 1)

    assert create_trial(tmp_path / "late", timeout_s=60, pause=pause).steps() == [0]
    assert len(waits) == 1


class Live:
    """A training that makes steps while a reader waits."""

    def __init__(self, folder: Path, *, steps: int) -> None:
        self.writer = write_run(folder, 1, every=5, ends=False)
        self._left = iter(range(1, steps))
        self.pauses = 0

    def pause(self, seconds: float) -> None:
        self.pauses += 1
        number = next(self._left, None)
        if number is None:
            self.writer.close()
            return
        self.writer.append(step_of(number, saved=(number % 5 == 0, False, False)))
        self.writer.flush()


def test_a_reader_waits_for_steps_of_a_training_that_runs(tmp_path: Path) -> None:
    live = Live(tmp_path, steps=12)
    trial = create_trial(tmp_path, pause=live.pause)
    assert trial.has_passed_step(0) is StepState.AVAILABLE
    assert trial.has_passed_step(5) is StepState.NOT_YET_AVAILABLE
    with pytest.raises(StepNotYetAvailable):
        trial.tensor(WEIGHT).value(5)
    trial.wait_for_steps([0, 5])
    assert trial.steps() == [0, 5]
    with pytest.raises(StepUnavailable):
        trial.wait_for_steps([7])
    assert trial.has_passed_step(7) is StepState.UNAVAILABLE
    with pytest.raises(NoMoreData) as told:
        trial.wait_for_steps([15])
    assert told.value.last_step == 10
    assert trial.loaded_all_steps


def test_answers_of_one_moment_do_not_change(tmp_path: Path) -> None:
    live = Live(tmp_path, steps=12)
    trial = create_trial(tmp_path)
    with trial.no_refresh():
        for _ in range(6):
            live.pause(0)
        assert trial.steps() == [0]
    assert trial.steps() == [0, 5]


class Far:
    """A folder that is read as if it lay far away, and how much was read of it."""

    def __init__(self, root: Path) -> None:
        self._folder, self.place = FolderSource(root), str(root)
        self.bytes, self.listed, self.is_dead, self.breaks_at = 0, 0, False, "nothing"

    def entries(self, folder: str = "", *, after: str = "") -> Sequence[SourceEntry]:
        self._check()
        found = self._folder.entries(folder, after=after)
        self.listed += len(found)
        return found

    def folders(self, folder: str = "", *, after: str = "") -> Sequence[str]:
        return self._folder.folders(folder, after=after)

    def size(self, name: str) -> int:
        self._check()
        return self._folder.size(name)

    def read(self, name: str, *, start: int = 0, size: int | None = None) -> bytes:
        self._check()
        if name.endswith(self.breaks_at):
            raise Unavailable(f"The call for {name} broke off.")
        data = self._folder.read(name, start=start, size=size)
        self.bytes += len(data) if name.endswith(".arrows") else 0
        return data

    def _check(self) -> None:
        if self.is_dead:
            raise Unavailable("Nothing listens at http://127.0.0.1:1.")


def test_a_refresh_reads_only_what_was_appended(tmp_path: Path) -> None:
    writer = write_run(tmp_path, 500, ends=False)
    source = Far(tmp_path)
    trial = create_trial(source)
    assert len(trial.series(LOSS).values) == 500
    (segment,) = tmp_path.glob("steps/worker_0/*")
    assert source.bytes == segment.stat().st_size
    source.bytes = source.listed = 0
    before = segment.stat().st_size
    writer.append(step_of(500))
    writer.flush()
    trial.refresh()
    assert len(trial.series(LOSS).values) == 501
    assert source.bytes == segment.stat().st_size - before
    source.listed = 0
    trial.refresh()
    assert source.listed <= 2  # the manifest and the newest segment, however many there are


def test_a_store_that_does_not_answer_is_unavailable_and_costs_nothing_that_was_read(tmp_path: Path) -> None:
    writer = write_run(tmp_path, 20, ends=False)
    source = Far(tmp_path)
    trial = create_trial(source)
    source.is_dead = True
    with pytest.raises(Unavailable, match="Nothing listens"):
        trial.refresh()
    with trial.no_refresh():
        assert len(trial.series(LOSS).values) == 20
    source.is_dead = False
    writer.append(step_of(20))
    writer.close()
    trial.refresh()
    assert len(trial.series(LOSS).values) == 21
    assert trial.loaded_all_steps


def test_files_that_come_to_a_store_out_of_order_take_their_places(tmp_path: Path) -> None:
    whole, store = tmp_path / "whole", tmp_path / "store"
    clock = Clock()
    writer = TrialWriter(whole, clock=clock)
    for number in range(12):
        writer.append(step_of(number, saved=(number % 2 == 0, False, False)))
        writer.flush()
        clock.now += SEGMENT_AGE / 3
    writer.close()
    names = sorted(path.name for path in (whole / "steps/worker_0").iterdir())
    assert len(names) == 3

    def bring(name: str, share: float = 1.0) -> None:
        (store / "steps/worker_0").mkdir(parents=True, exist_ok=True)
        data = (whole / "steps/worker_0" / name).read_bytes()
        (store / "steps/worker_0" / name).write_bytes(data[: int(len(data) * share)])

    bring(names[0], 0.6)
    (store / "worker_0.manifest.json").write_bytes((whole / "worker_0.manifest.json").read_bytes())
    trial = create_trial(Far(store))
    begun = trial.steps(known=True)
    assert 0 < len(begun) < 4
    assert not trial.loaded_all_steps
    bring(names[2])
    trial.refresh()
    assert trial.steps(known=True) == [*begun, *range(8, 12)]
    bring(names[0])
    trial.refresh()
    assert trial.steps(known=True) == [*range(4), *range(8, 12)]
    bring(names[1])
    trial.refresh()
    assert trial.steps(known=True) == list(range(12))
    assert trial.steps() == list(range(0, 12, 2))
    assert trial.loaded_all_steps
    assert trial.series(WEIGHT, "max").values.tolist() == [values_at(step, 0).max() for step in range(12)]


def test_a_read_that_broke_off_is_done_again(tmp_path: Path) -> None:
    writer = write_run(tmp_path, 20, ends=False)
    source = Far(tmp_path)
    trial = create_trial(source)
    writer.append(step_of(20))
    writer.flush()
    source.breaks_at = "arrows"
    with pytest.raises(Unavailable):
        trial.refresh()
    source.breaks_at = "nothing"
    trial.refresh()
    assert trial.steps(known=True) == list(range(21))


def write_workers(folder: Path, tellings: dict[str, list[Step]], *, workers: int) -> dict[str, TrialWriter]:
    writers = {}
    for worker, steps in tellings.items():
        writers[worker] = TrialWriter(folder, worker=worker, workers=workers, clock=Clock())
        for step in steps:
            writers[worker].append(step)
        writers[worker].flush()
    return writers


def steps_of(worker: str, count: int) -> list[Step]:
    return [step_of(number, worker=worker, saved=(True, True, False)) for number in range(count)]


def test_a_step_is_complete_when_all_workers_have_recorded_or_passed_it(tmp_path: Path) -> None:
    slow = steps_of("worker_1", 5)
    del slow[2]  # it was dropped, and never comes
    writers = write_workers(tmp_path, {"worker_0": steps_of("worker_0", 8), "worker_1": slow}, workers=2)
    trial = create_trial(tmp_path)
    assert trial.workers() == ["worker_0", "worker_1"]
    assert trial.steps() == [0, 1, 2, 3, 4]
    assert trial.steps(show_incomplete_steps=True) == list(range(8))
    assert trial.last_complete_step == 4
    assert trial.has_passed_step(6) is StepState.NOT_YET_AVAILABLE
    assert trial.tensor(LOSS).workers(2) == ["worker_0"]
    writers["worker_1"].close()
    assert trial.steps() == list(range(8))
    assert not trial.loaded_all_steps
    writers["worker_0"].close()
    assert trial.loaded_all_steps


def test_nothing_is_complete_before_all_workers_have_begun(tmp_path: Path) -> None:
    write_workers(tmp_path, {"worker_0": steps_of("worker_0", 3)}, workers=2)
    trial = create_trial(tmp_path)
    assert (trial.num_workers, trial.steps(), trial.last_complete_step) == (2, [], -1)
    assert trial.has_passed_step(0) is StepState.NOT_YET_AVAILABLE
    write_workers(tmp_path, {"worker_1": steps_of("worker_1", 2)}, workers=2)
    assert trial.steps() == [0, 1]


def test_workers_are_in_the_order_of_their_ranks(tmp_path: Path) -> None:
    names = [f"worker_{rank}" for rank in (0, 1, 2, 10, 11)]
    write_workers(tmp_path, {name: steps_of(name, 1) for name in reversed(names)}, workers=5)
    assert create_trial(tmp_path).workers() == names


def test_a_killed_job_has_ended_when_its_agent_says_so(tmp_path: Path) -> None:
    write_workers(tmp_path, {name: steps_of(name, 2) for name in ("worker_0", "worker_1")}, workers=3)
    trial = create_trial(tmp_path)
    assert trial.steps() == []
    mark_ended(tmp_path, at=NOON.replace(hour=13))
    assert trial.loaded_all_steps
    assert trial.steps() == [0, 1]
    with pytest.raises(NoMoreData):
        trial.wait_for_steps([2])


def test_the_parts_of_a_tensor_are_joined_to_what_the_whole_is(tmp_path: Path) -> None:
    whole = np.random.default_rng(0).normal(3, 2, (10, 4)).astype(np.float32)
    parts = {"worker_0": whole[:7], "worker_1": whole[7:]}
    for worker, part in parts.items():
        info = TensorInfo("w", Kind.WEIGHT, part.shape, "float32", whole_shape=whole.shape)
        writer = TrialWriter(tmp_path, worker=worker, workers=2, clock=Clock())
        table = TensorTable((info,))
        for number in range(3):
            told = statistics_of(part * (number + 1))[None]
            empty = np.empty(0)
            writer.append(Step(number, Mode.TRAIN, number, 0, worker, table, told, empty.astype(np.float32), empty))
        writer.close()
    trial = create_trial(tmp_path)
    assert trial.tensor("w").reduction_value(1, "std") == pytest.approx((whole * 2).std(), rel=1e-5)
    assert trial.tensor("w").reduction_value(1, "l2") == pytest.approx(np.linalg.norm(whole * 2), rel=1e-5)
    assert trial.series("w", "mean").values == pytest.approx([(whole * k).mean() for k in (1, 2, 3)], rel=1e-5)
    assert trial.series("w", "l1", worker="worker_1").values[0] == pytest.approx(np.abs(whole[7:]).sum(), rel=1e-5)
    assert trial.series("w", "min").values[2] == (whole * 3).min()


def test_labels_and_predictions_are_found_by_their_collections(tmp_path: Path) -> None:
    tensors = tuple(TensorInfo(name, Kind.CUSTOM, (4,), "int64", (name,)) for name in ("labels", "predictions"))
    writer = TrialWriter(tmp_path, clock=Clock())
    values = {"labels": np.array([1, 0, 1, 1]), "predictions": np.array([1, 1, 1, 0])}
    told = np.stack([statistics_of(each) for each in values.values()])
    empty = np.empty(0)
    writer.append(
        Step(
            0,
            Mode.TRAIN,
            0,
            0,
            "worker_0",
            TensorTable(tensors),
            told,
            empty.astype(np.float32),
            empty,
            saved=np.ones(2, bool),
        )
    )
    writer.save_values(0, values)
    writer.close()
    trial = create_trial(tmp_path)
    assert [each.tolist() for each in trial.labels(0)] == [[1, 0, 1, 1]]
    assert [each.tolist() for each in trial.predictions(0)] == [[1, 1, 1, 0]]
    assert trial.inputs(0) == []


def test_a_damaged_segment_costs_only_what_follows_the_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    writer = TrialWriter(tmp_path, clock=Clock())
    for number in range(3):
        writer.append(step_of(number))
        writer.flush()
    (segment,) = tmp_path.glob("steps/worker_0/*")
    intact = segment.read_bytes()
    writer.append(step_of(3))
    writer.close()
    data = bytearray(segment.read_bytes())
    data[len(intact)] = 0
    segment.write_bytes(data)
    assert create_trial(tmp_path).steps(known=True) == [0, 1, 2]
    assert "damaged" in caplog.text


def test_a_format_of_another_version_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, 3)
    (segment,) = tmp_path.glob("steps/worker_0/*")
    schema = Scanner()
    data = segment.read_bytes()
    schema.scan(memoryview(data))
    assert schema.schema is not None
    newer = Schema(schema.schema.fields, {**schema.schema.metadata, "trainyard.tensors": "7"})
    old, new = (encode_schema(each) for each in (schema.schema, newer))
    segment.write_bytes(data.replace(old, new))
    with pytest.raises(Corrupt, match="has the format 7, but this version of Trainyard reads 1"):
        create_trial(tmp_path)


def test_what_a_reader_answers_does_not_depend_on_how_often_it_looked(tmp_path: Path) -> None:
    writer = TrialWriter(tmp_path, clock=Clock())
    follower = create_trial(tmp_path)
    look: Callable[[Trial], tuple[object, ...]] = lambda each: (  # noqa: E731
        each.steps(),
        each.series(WEIGHT, "mean").values.tolist(),
        each.table().values.tolist(),
    )
    for number in range(40):
        writer.append(step_of(number, saved=(number % 3 == 0, False, False)))
        if number % 4 == 0 or number > 30:
            writer.flush()
            assert look(follower) == look(create_trial(tmp_path))
    writer.close()
    assert look(follower) == look(create_trial(tmp_path))
    assert len(TABLE.tensors) == follower.table().values.shape[1]


def test_a_manifest_of_lists_within_lists_is_damaged(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / "worker_0.manifest.json").write_text('{"x": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(Corrupt, match="is not valid JSON"):
        list(create_trial(str(tmp_path)).read_steps())
