from trainyard.formats.downsampling import find_extremes


def test_each_part_keeps_its_lowest_and_highest_value_in_their_order() -> None:
    values = [3.0, 9.0, 1.0, 5.0, 5.0, 5.0, 2.0]
    assert [values[number] for number in find_extremes(values, 3)] == [9.0, 1.0, 5.0, 2.0]
    assert list(find_extremes([], 3)) == []
