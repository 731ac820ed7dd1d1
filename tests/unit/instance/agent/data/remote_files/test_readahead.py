from itertools import pairwise

from trainyard.instance.agent.data.remote_files.readahead import ReadAheadPredictor

KIBIBYTE, MEBIBYTE = 1 << 10, 1 << 20


def test_read_ahead_grows_for_a_file_that_is_read_sequentially() -> None:
    foresight = ReadAheadPredictor()
    expected = [foresight.bytes_after(0, offset=offset, size=MEBIBYTE) for offset in range(0, 12 * MEBIBYTE, MEBIBYTE)]
    assert expected[0] > 0
    assert all(before <= after for before, after in pairwise(expected))
    assert expected[-1] == 32 * MEBIBYTE


def test_there_is_no_read_ahead_for_a_file_that_is_read_randomly() -> None:
    foresight = ReadAheadPredictor()
    places = [700 * MEBIBYTE, 3 * MEBIBYTE, 90 * MEBIBYTE, 500 * MEBIBYTE]
    assert [foresight.bytes_after(0, offset=place, size=64 * KIBIBYTE) for place in places] == [0, 0, 0, 0]


def test_requests_out_of_order_still_count_as_sequential() -> None:
    foresight = ReadAheadPredictor()
    for number in (0, 1, 3, 2, 4, 5):
        expected = foresight.bytes_after(0, offset=number * MEBIBYTE, size=MEBIBYTE)
    assert expected > MEBIBYTE


def test_after_some_files_in_a_row_the_next_ones_are_fetched() -> None:
    foresight = ReadAheadPredictor()
    expected = []
    for file in range(8):
        foresight.bytes_after(file, offset=0, size=KIBIBYTE)
        expected.append(foresight.files_after(file))
    assert expected[0] == 0
    assert expected[1] > 0
    assert expected[-1] == 64


def test_files_in_random_order_cause_no_read_ahead_of_others() -> None:
    foresight = ReadAheadPredictor()
    for file in (9, 2, 44, 17, 5):
        foresight.bytes_after(file, offset=0, size=KIBIBYTE)
        assert foresight.files_after(file) == 0


def test_the_number_of_tracked_files_is_limited() -> None:
    foresight = ReadAheadPredictor()
    for file in range(10_000):
        foresight.bytes_after(file, offset=0, size=KIBIBYTE)
    assert foresight.files_after(0) == 0
    assert foresight.files_after(9_999) == 64
