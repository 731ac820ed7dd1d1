"""The table of tensors as text: it comes back as it was, and what is no table is said to be none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.formats.tensors.contract import Kind, Measure, Probe, TensorInfo, TensorTable
from trainyard.formats.tensors.encoding.json_documents import decode_table, encode_table
from trainyard.foundation.errors import Corrupt

shapes = st.lists(st.integers(0, 9), max_size=3).map(tuple)
words = st.text(max_size=8)
tensors = st.builds(
    TensorInfo, words, st.sampled_from(Kind), shapes, words, st.lists(words, max_size=2).map(tuple), words, shapes
)
probes = st.builds(Probe, words, st.lists(st.floats(-1e9, 1e9), max_size=2).map(tuple))
tables = st.builds(
    TensorTable,
    st.lists(tensors, max_size=4).map(tuple),
    st.lists(st.builds(Measure, st.integers(0, 3), probes), max_size=2).map(tuple),
)


@given(tables)
def test_a_table_comes_back_as_it_was(table: TensorTable) -> None:
    assert decode_table(encode_table(table)) == table


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tensors": [{}]}', '{"tensors": [{"name": "x", "kind": "no"}]}'])
def test_an_invalid_table_is_corrupt(text: str) -> None:
    with pytest.raises(Corrupt, match="Cannot read a table of tensors"):
        decode_table(text)


def test_equal_texts_give_one_table() -> None:
    table = TensorTable((TensorInfo("w", Kind.WEIGHT, (2,), "float32"),))
    assert decode_table(encode_table(table)) is decode_table(encode_table(table))
