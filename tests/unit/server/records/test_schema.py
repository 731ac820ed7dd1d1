"""A prefix is a range of text in the order of its bytes."""

from hypothesis import given
from hypothesis import strategies as st

from trainyard.server.records.schema import prefix_end

texts = st.text(alphabet=st.sampled_from("aAz~\x7f\u0080\ud7ff\ue000\uffff\U00010000\U0010ffff"), max_size=4)


@given(prefix=texts, text=texts)
def test_a_prefix_range_contains_exactly_the_texts_with_the_prefix(prefix: str, text: str) -> None:
    end = prefix_end(prefix)
    is_inside = prefix.encode() <= text.encode() and (end is None or text.encode() < end.encode())
    assert is_inside == text.startswith(prefix)


def test_the_empty_prefix_has_no_end() -> None:
    assert prefix_end("") is None
    assert prefix_end("\U0010ffff") is None
