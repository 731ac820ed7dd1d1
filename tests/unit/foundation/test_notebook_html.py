"""What notebooks show: escaped, small, and without colours of its own."""

import math
import re

from trainyard.foundation.notebook_html import card, curve, table


def test_all_text_is_escaped() -> None:
    shown = card("<a>", {"<b>": "<c>"}, table(("<d>",), [("<e>",)]))
    assert not re.search(r"<[abcde]>", shown)
    assert all(f"&lt;{letter}&gt;" in shown for letter in "abcde")


def test_empty_values_and_tables_are_left_out() -> None:
    shown = card("title", {"reason": ""}, table(("column",), []))
    assert "reason" not in shown
    assert "<table" not in shown


def test_colours_are_those_of_the_page_and_nothing_is_loaded() -> None:
    shown = card("title", {"name": "value"}, table(("column",), [("cell", curve([1.0, 2.0]))]))
    assert not re.search(r"#[0-9a-f]{3}|rgb\(|https?:|url\(|<script|<link", shown)


def test_a_curve_of_many_points_is_small_and_leaves_out_what_is_not_finite() -> None:
    shown = curve([math.nan, *range(100_000), math.inf])
    assert len(shown) < 10_000
    assert "nan" not in shown
    assert curve([1.0, math.nan]) == ""


def test_a_table_with_rows_has_its_title_above_it() -> None:
    assert table(["a"], [["1"]], title="A <title>").startswith("<strong>A &lt;title&gt;</strong><table")
    assert table(["a"], [], title="Nothing") == ""
