import json
from enum import Enum

import numpy as np

from trainyard.formats.profiles.contract import HardwareMetric, StepPhase
from trainyard.insight.profiling.contract import MemoryHolder
from trainyard.insight.profiling.report.json_values import encode_json, to_json_value


class Colour(Enum):
    RED = "red"


def test_values_of_any_kind_become_json() -> None:
    given = {
        StepPhase.DATA_WAIT: np.float64(0.5),
        "array": np.array([1, 2]),
        "unknown": float("nan"),
        "endless": np.array([np.inf]),
        "holder": MemoryHolder("parameters", 5),
        "metric": HardwareMetric.CPU_PERCENT,
        "set": {1},
        "colour": Colour.RED,
        "other": object,
    }
    found = to_json_value(given)
    assert found["data_wait"] == 0.5
    assert found["array"] == [1, 2]
    assert found["unknown"] is None
    assert found["endless"] == [None]
    assert found["holder"] == {"name": "parameters", "bytes": 5}
    assert (found["metric"], found["set"], found["colour"]) == ("cpu_percent", [1], "red")
    assert found["other"] == "<class 'object'>"


def test_a_value_that_contains_itself_ends() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert json.dumps(to_json_value(endless))


def test_encoded_json_is_inert_in_a_script_element() -> None:
    text = encode_json({"<!--<script>": "</script>&\u2028é\ud800"})
    assert not set("<>&") & set(text)
    assert text.isascii()
    assert json.loads(text) == {"<!--<script>": "</script>&\u2028é\ud800"}
