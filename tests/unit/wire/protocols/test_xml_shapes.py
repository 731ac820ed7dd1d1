from typing import Any

import pytest
from botocore.model import ServiceModel

from trainyard.wire.protocols.xml_shapes import XmlReader, XmlWriter
from trainyard.wire.protocols.xml_text import parse_xml

SERVICE = ServiceModel(
    {
        "metadata": {},
        "operations": {},
        "shapes": {
            "Tree": {
                "type": "structure",
                "members": {
                    "Name": {"shape": "Text", "locationName": "name"},
                    "Branches": {"shape": "Trees"},
                    "Leaves": {"shape": "Leaves", "locationName": "Leaf"},
                },
            },
            "Trees": {"type": "list", "member": {"shape": "Tree", "locationName": "Branch"}},
            "Leaves": {"type": "list", "flattened": True, "member": {"shape": "Text"}},
            "Box": {"type": "structure", "members": {"Name": {"shape": "Text"}, "Sizes": {"shape": "Sizes"}}},
            "Sizes": {"type": "map", "key": {"shape": "Text"}, "value": {"shape": "Number"}},
            "Text": {"type": "string"},
            "Number": {"type": "integer"},
        },
    },
    "forest",
)


def _write(shape: str, value: dict[str, Any]) -> str:
    pieces: list[str] = []
    XmlWriter("iso8601").compile(SERVICE.shape_for(shape), shape)(value, pieces.append)
    return "".join(pieces)


def test_a_shape_that_contains_itself_is_written_and_read_to_its_end() -> None:
    value = {"Name": "root", "Branches": [{"Branches": [{"Name": "twig", "Leaves": ["a", "b"]}]}]}
    text = _write("Tree", value)
    assert text == (
        "<Tree><name>root</name><Branches><Branch><Branches><Branch><name>twig</name><Leaf>a</Leaf><Leaf>b</Leaf>"
        "</Branch></Branches></Branch></Branches></Tree>"
    )
    assert XmlReader().compile(SERVICE.shape_for("Tree"))(parse_xml(text.encode(), 100)) == value


def test_a_map_is_written_as_entries_and_none_is_left_out() -> None:
    assert _write("Box", {"Sizes": {"a": 1, "b": None}, "Name": None}) == (
        "<Box><Sizes><entry><key>a</key><value>1</value></entry></Sizes></Box>"
    )
    assert _write("Tree", {"Leaves": [None, "a"]}) == "<Tree><Leaf>a</Leaf></Tree>"


def test_a_member_that_the_model_does_not_have_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="Tree has no member Roots"):
        _write("Tree", {"Roots": []})
