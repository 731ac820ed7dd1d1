import pytest

from trainyard.insight.profiling.report.markup import element, escape_text, join, name_of


def test_text_is_escaped_and_elements_are_not() -> None:
    made = element("p", "a < b & ", element("b", "c"), title='"quoted"')
    assert made == '<p title="&quot;quoted&quot;">a &lt; b &amp; <b>c</b></p>'


def test_text_of_an_element_that_was_joined_with_others_is_text_again() -> None:
    """A string is only ever text, whatever it was made from."""
    assert element("p", "x" + element("b", "c")) == "<p>x&lt;b&gt;c&lt;/b&gt;</p>"


def test_attributes_without_a_value_are_left_out() -> None:
    assert element("td", "1", class_=None, data_x0=5, aria_label="one") == '<td data-x0="5" aria-label="one">1</td>'


def test_void_elements_have_no_end() -> None:
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_parts_are_joined_with_an_escaped_separator() -> None:
    assert join(["a", None, element("b", "c"), ""], " & ") == "a &amp; <b>c</b>"


@pytest.mark.parametrize("text", ["\0", "\x1b[2J", "\x85"])
def test_control_characters_are_replaced(text: str) -> None:
    assert text[0] not in escape_text(f"a{text}b")


def test_white_space_is_kept() -> None:
    assert escape_text("a\n\tb") == "a\n\tb"


def test_long_names_are_shortened_in_the_middle_and_may_be_broken_between_words() -> None:
    name = name_of("void at::native::" + "x" * 200 + "::kernel<float>")
    assert "…" in name
    assert "void at::<wbr>native::<wbr>" in name
    assert name.startswith('<code title="void at::native::')


def test_a_name_is_escaped_word_by_word() -> None:
    assert name_of("<script>alert_1") == "<code>&lt;<wbr>script&gt;alert_<wbr>1</code>"


def test_an_empty_name_is_empty() -> None:
    assert name_of("") == "<code></code>"
