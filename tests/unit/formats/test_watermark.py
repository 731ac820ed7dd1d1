from hypothesis import given
from hypothesis import strategies as st

from trainyard.formats.watermark import LOWEST, Watermark, find_first_reaching

TIMES = st.integers(-20, 20)


@given(st.lists(TIMES, min_size=1), TIMES)
def test_the_two_searches_enclose_every_record_of_a_time_range(times: list[int], bound: int) -> None:
    marks = watermarks(times)
    first = find_first_reaching(bound, len(times), peak_of=lambda number: marks[number].peak)
    assert all(time < bound for time in times[:first])
    assert first == len(times) or times[first] >= bound
    stop = find_first_reaching(bound + marks[-1].lag, len(times), peak_of=lambda number: marks[number].peak)
    assert all(time >= bound for time in times[stop:])


@given(st.lists(TIMES, min_size=1).map(sorted))
def test_records_in_order_have_no_lag(times: list[int]) -> None:
    assert watermarks(times)[-1] == Watermark(peak=times[-1], lag=0)


def watermarks(times: list[int]) -> list[Watermark]:
    marks = [LOWEST]
    for time in times:
        marks.append(marks[-1].with_time(time))
    return marks[1:]
