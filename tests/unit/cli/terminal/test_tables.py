import click
import pytest

from trainyard.cli.terminal.tables import Column, print_table

COLUMNS = ("job", Column("limit", "right"))


def printed(capsys: pytest.CaptureFixture[str], *, color: bool, cell: str = "[bold]a[/bold]") -> str:
    with click.Context(click.Command("test"), color=color) as context:
        context.color = color
        print_table(COLUMNS, [(cell, "8"), ("Completed", "12")])
    return capsys.readouterr().out


def test_without_emphasis_columns_are_aligned_below_their_titles(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, color=False) == ("job             limit\n[bold]a[/bold]      8\nCompleted          12\n")


def test_with_emphasis_titles_are_bold_states_have_colours_and_markup_stays_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = printed(capsys, color=True)
    assert "\x1b[1mjob" in shown
    assert "[bold]a[/bold]" in shown
    assert "\x1b[32mCompleted" in shown


@pytest.mark.parametrize("color", [False, True])
def test_control_sequences_in_cells_are_removed(capsys: pytest.CaptureFixture[str], color: bool) -> None:
    shown = printed(capsys, color=color, cell="\x1b]0;title\x07\x1b[31mred\x1b[2J\nnext")
    assert "red next" in shown
    assert "\x1b[31m" not in shown
    assert "\x1b]" not in shown
    assert "\x1b[2J" not in shown
