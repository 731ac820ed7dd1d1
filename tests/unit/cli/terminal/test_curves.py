from trainyard.cli.terminal.curves import curve_lines


def test_a_curve_goes_from_its_first_to_its_last_value() -> None:
    lines = curve_lines([0.0, 1.0], width=9, height=2, low=0.0, high=1.0)
    assert lines == ["1 ┤ ⠀⠀⢀⠤⠊", "0 ┤ ⡠⠒⠁⠀⠀"]


def test_one_value_and_equal_values_are_drawn() -> None:
    assert curve_lines([3.0], width=9, height=3, low=3.0, high=3.0)[1] == "  ┤ ⠂⠀⠀⠀⠀".replace("⠂", "⠄")
    (middle,) = [line for line in curve_lines([3.0] * 10, width=9, height=3, low=3.0, high=3.0) if "⠤" in line]
    assert middle.count("⠤") == 5


def test_many_values_fit_the_width() -> None:
    lines = curve_lines([float(number % 7) for number in range(1000)], width=60, height=8, low=0.0, high=6.0)
    assert len(lines) == 8
    assert max(map(len, lines)) == 60
