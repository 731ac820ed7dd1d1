import time

import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run
from trainyard.formats.tensors.contract import ABSENT, Kind, Mode, Probe, Statistic, Step, TensorInfo, TensorTable
from trainyard.formats.tensors.statistics.probes import UPDATE_RATIO, VALUE_SHARE
from trainyard.insight.rules.catalog import make_rule
from trainyard.insight.rules.contract import Need
from trainyard.insight.rules.readings import History, KeptRows, Reader, Streaks, Track, is_matrix, trains, worst

WEIGHT, BIAS, LOSS = "Net_fc.weight", "Net_fc.bias", "CrossEntropyLoss_output_0"


def test_a_tensor_is_read_by_its_collection_its_kind_or_its_name() -> None:
    step = Run().step({WEIGHT: np.ones((2, 2)), BIAS: np.ones(2), LOSS: 0.5, "relu_output_0": np.ones((2, 2))})
    assert Reader(Need(collections=("weights",))).read(step).chosen.names == (WEIGHT,)
    assert Reader(Need(collections=("biases",), regexes=("relu",))).read(step).chosen.names == (BIAS, "relu_output_0")
    assert len(Reader(Need(collections=("all",))).read(step).chosen) == 4


def test_what_was_not_looked_at_is_nan() -> None:
    reading = Reader(Need(collections=("weights", "losses"))).read(Run().step({WEIGHT: None, LOSS: 0.1}))
    assert np.isnan(reading.column(Statistic.MEAN)[0])
    assert reading.values()[1] == 0.1  # exactly, not as the nearest 32-bit float


def test_a_probe_is_taken_of_raw_values_where_it_was_not_measured() -> None:
    probe, run = Probe(VALUE_SHARE, (0.0,)), Run()
    reader = Reader(Need(collections=("weights",)))
    raw = run.step({WEIGHT: np.array([[0.0, 1.0]]), "Net_b.weight": np.zeros((2, 2))}, is_raw=True)
    measured = run.step({WEIGHT: np.ones((1, 2)), "Net_b.weight": np.ones(2)}, measures={(WEIGHT, probe): 0.25})
    assert list(reader.read(raw).measure(probe)) == [0.5, 1.0]
    assert list(reader.read(measured).measure(probe)) == [0.25, pytest.approx(np.nan, nan_ok=True)]


def test_an_update_is_taken_of_raw_values_of_the_same_mode() -> None:
    probe, run = Probe(UPDATE_RATIO, (0.0,)), Run()
    reader = Reader(Need(collections=("weights",), probes=(probe,)))
    for value, mode, ratio in ((1.0, Mode.TRAIN, np.nan), (9.0, Mode.EVAL, np.nan), (3.0, Mode.TRAIN, 2.0)):
        step = run.step({WEIGHT: np.full((2, 2), value)}, mode=mode, is_raw=True)
        assert reader.read(step).measure(probe)[0] == pytest.approx(ratio, nan_ok=True)


def test_an_update_is_taken_of_raw_values_of_the_same_worker_however_long_ago_they_were_saved() -> None:
    probe, runs = Probe(UPDATE_RATIO, (0.0,)), (Run("worker_0"), Run("worker_1"))
    reader = Reader(Need(collections=("weights",), probes=(probe,)))
    for worker, value, is_raw, ratio in (
        (0, 1.0, True, np.nan),
        (1, 9.0, True, np.nan),
        (0, 5.0, False, np.nan),
        (0, 3.0, True, 2.0),
        (1, 18.0, True, 1.0),
    ):
        step = runs[worker].step({WEIGHT: np.full((2, 2), value)}, is_raw=is_raw)
        assert reader.read(step).measure(probe)[0] == pytest.approx(ratio, nan_ok=True)


def test_a_need_without_updates_keeps_no_raw_values() -> None:
    probe, run = Probe(UPDATE_RATIO, (0.0,)), Run()
    reader = Reader(Need(collections=("weights",), probes=(Probe(VALUE_SHARE, (0.0,)),)))
    for value in (1.0, 3.0):
        step = run.step({WEIGHT: np.full((2, 2), value)}, is_raw=True)
        assert np.isnan(reader.read(step).measure(probe)[0])


def test_history_and_streaks_follow_tensors_into_another_table() -> None:
    run, reader, history, streaks = Run(), Reader(Need(collections=("weights",))), History(), Streaks()
    first = reader.read(run.step({"Net_a.weight": 1.0, "Net_b.weight": 2.0}))
    second = reader.read(run.step({"Net_c.weight": 5.0, "Net_b.weight": 3.0}))
    for reading in (first, second):
        history.add(reading, reading.values())
    assert list(history.evidence(second, 1, label="value").values) == [2.0, 3.0]
    assert list(history.evidence(second, 0, label="value").values) == [5.0]
    assert list(streaks.count(first, np.array([True, True]))) == [1, 1]
    assert list(streaks.count(second, np.array([True, True]))) == [1, 2]


def test_the_worst_come_first_and_are_not_too_many() -> None:
    assert worst(np.array([True, False, True, True]), np.array([1.0, 9.0, 3.0, 2.0])) == [2, 3, 0]
    assert len(worst(np.ones(100, dtype=bool), np.arange(100.0))) == 16


def test_a_thousand_tensors_take_a_rule_well_under_a_millisecond() -> None:
    names = [f"gradient/Net_{number}.weight" for number in range(1000)]
    table = TensorTable(
        tuple(TensorInfo(name, Kind.GRADIENT, (8, 8), "float32", ("gradients",), name) for name in names)
    )
    rows = np.random.default_rng(0).uniform(0.1, 1, (1000, 8)).astype(np.float32)
    rows[:, Statistic.NANS] = 0
    rows[::7, Statistic.NANS] = ABSENT
    step = Step(0, Mode.TRAIN, 0, 0, "worker_0", table, rows, np.empty(0, np.float32), np.empty(0))
    rule = make_rule("VanishingGradient", {})
    assert list(rule.check(step)) == []
    took_s = []
    for _ in range(20):
        began_s = time.thread_time()
        assert list(rule.check(step)) == []
        took_s.append(time.thread_time() - began_s)
    assert min(took_s) < 1e-3


def test_a_streak_ends_at_a_step_that_was_looked_at_and_outlives_one_that_was_not() -> None:
    run, reader, streaks = Run(), Reader(Need(collections=("weights",))), Streaks()
    for seen, is_hit, expected in (
        (1.0, True, 1),
        (1.0, True, 2),
        (None, False, 2),
        (1.0, True, 3),
        (1.0, False, 0),
        (1.0, True, 1),
    ):
        reading = reader.read(run.step({WEIGHT: seen}))
        assert list(streaks.count(reading, np.array([is_hit]))) == [expected]


def test_each_worker_and_each_mode_has_streaks_of_its_own() -> None:
    reader, streaks, hit = Reader(Need(collections=("weights",))), Streaks(), np.array([True])
    first, second = Run("worker_0"), Run("worker_1")
    counts = [
        list(streaks.count(reader.read(run.step({WEIGHT: 1.0}, mode=mode)), hit))
        for run, mode in ((first, Mode.TRAIN), (second, Mode.TRAIN), (first, Mode.EVAL), (first, Mode.TRAIN))
    ]
    assert counts == [[1], [1], [1], [2]]


def test_evidence_is_of_the_last_steps_in_their_order_without_those_that_say_nothing() -> None:
    run, reader, history = Run(), Reader(Need(collections=("weights",))), History(depth=4)
    for number in range(6):
        reading = reader.read(run.step({WEIGHT: None if number == 4 else float(number)}))
        history.add(reading, reading.values())
    evidence = history.evidence(reading, 0, label="value")
    assert (evidence.label, list(evidence.steps), list(evidence.values)) == ("value", [2, 3, 5], [2.0, 3.0, 5.0])


def test_evidence_of_no_single_tensor_is_of_the_last_sixty_four_steps() -> None:
    track = Track()
    for step in range(100):
        track.add(step, step / 2)
    evidence = track.evidence("share")
    assert list(evidence.steps) == list(range(36, 100))
    assert list(evidence.values) == [step / 2 for step in range(36, 100)]


def test_what_is_kept_follows_tensors_into_another_table() -> None:
    run, reader, kept = Run(), Reader(Need(collections=("weights",))), KeptRows()
    first = reader.read(run.step({"Net_a.weight": 1.0, "Net_b.weight": 2.0}))
    assert np.isnan(kept.rows(first)).all()
    kept.keep(first, first.rows)
    again = reader.read(run.step({"Net_a.weight": 5.0, "Net_b.weight": 6.0}))
    assert list(kept.rows(again)[:, Statistic.MEAN]) == [1.0, 2.0]
    other = reader.read(run.step({"Net_b.weight": 7.0, "Net_c.weight": 8.0}))
    assert list(kept.rows(other)[:, Statistic.MEAN]) == [2.0, pytest.approx(np.nan, nan_ok=True)]


def test_what_trains_has_a_gradient_where_there_are_any() -> None:
    reader, run = Reader(Need(collections=("weights", "biases"))), Run()
    without = reader.read(run.step({WEIGHT: np.ones((2, 2)), BIAS: np.ones(2)}))
    assert list(without.chosen.is_trained) == [True, True]
    step = run.step({WEIGHT: np.ones((2, 2)), BIAS: np.ones(2), f"gradient/{WEIGHT}": np.ones((2, 2))})
    assert list(reader.read(step).chosen.is_trained) == [True, False]


def test_only_what_is_kept_is_read_of_what_a_need_names() -> None:
    step = Run().step({WEIGHT: np.ones((2, 2)), "Net_b.weight": np.ones(2)})
    reader = Reader(Need(collections=("weights",)), keep=is_matrix)
    assert reader.read(step).chosen.names == (WEIGHT,)


def test_a_model_learns_where_the_program_says_so_or_says_nothing() -> None:
    run = Run()
    assert [trains(run.step({WEIGHT: 1.0}, mode=mode)) for mode in (Mode.TRAIN, Mode.GLOBAL, Mode.EVAL)] == [
        True,
        True,
        False,
    ]


def test_a_reader_keeps_the_choices_of_a_few_tables_only() -> None:
    reader = Reader(Need(collections=("weights",)))
    for _ in range(1000):
        assert reader.read(Run().step({WEIGHT: np.ones((2, 2))})).chosen.names == (WEIGHT,)
    assert len(reader._chosen) <= 100
