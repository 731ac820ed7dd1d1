"""A prefix is a range of text in the order of its bytes."""

from hypothesis import given
from hypothesis import strategies as st

from trainyard.server.records.prefixes import first_beyond

texts = st.text(alphabet=st.sampled_from("aAz~\x7f\u0080\ud7ff\ue000\uffff\U00010000\U0010ffff"), max_size=4)


@given(prefix=texts, text=texts)
def test_the_range_holds_exactly_the_texts_with_the_prefix(prefix: str, text: str) -> None:
    end = first_beyond(prefix)
    is_inside = prefix.encode() <= text.encode() and (end is None or text.encode() < end.encode())
    assert is_inside == text.startswith(prefix)


def test_nothing_lies_beyond_the_empty_prefix() -> None:
    assert first_beyond("") is None
    assert first_beyond("\U0010ffff") is None
