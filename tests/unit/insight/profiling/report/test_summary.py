import json

import pytest

from tests.profiles import HEALTHY, at_us
from tests.reported_jobs import slow_loading_source
from trainyard.insight.profiling.report.contract import ReportSource
from trainyard.insight.profiling.report.summary import summarize
from trainyard.insight.profiling.verdict.contract import ProfileVerdict


def test_the_figures_are_those_of_the_profile() -> None:
    found = summarize(slow_loading_source())
    assert found["job"]["duration_s"] == 2400
    assert found["job"]["initialization_s"] == pytest.approx(95)
    assert found["verdict"]["bottleneck"]["kind"] == "data_loading"
    assert found["verdict"]["advice"][0]["changes"] == {"loader_workers": "6", "persistent_workers": "true"}
    assert found["steps"][0]["phases_s"]["data wait"] == pytest.approx(0.128, rel=0.01)
    assert found["programs"][0]["loaders"][0]["workers"] == 2
    assert "wait_s" not in found["programs"][0]["loaders"][0]
    (cpu,) = [row for row in found["system"] if row["metric"] == "CPU" and row["device"] == "total"]
    assert cpu["mean"] == pytest.approx(37.5, abs=0.5)
    (trace,) = found["traces"].values()
    assert trace["steps"] == 6
    assert sum(role["share"] for role in trace["roles"].values()) == pytest.approx(1, abs=1e-4)
    assert trace["kernels"][0]["calls"] == 6


@pytest.mark.parametrize("name", sorted(HEALTHY))
def test_every_kind_of_profile_has_figures_that_json_can_say(name: str) -> None:
    source = ReportSource(HEALTHY[name](), ProfileVerdict("Nothing stands out."), at_us(9000))
    assert json.loads(json.dumps(summarize(source), allow_nan=False))["job"]["name"] == "a-job"
