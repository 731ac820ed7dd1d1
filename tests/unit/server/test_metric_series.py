from hypothesis import given
from hypothesis import strategies as st

from trainyard.server.metric_series import MetricId, record_prefix
from trainyard.server.services.cloudwatch.series import metric_shape, parse_metric

TEXTS = st.text(st.sampled_from("ab/%é "), min_size=1, max_size=4)
METRICS = st.builds(
    lambda namespace, name, dimensions: MetricId(namespace, name, tuple(sorted(dimensions.items()))),
    TEXTS,
    TEXTS,
    st.dictionaries(TEXTS, TEXTS, max_size=2),
)


@given(METRICS, METRICS)
def test_metrics_have_one_record_name_exactly_when_they_are_the_same(one: MetricId, other: MetricId) -> None:
    assert (one.record_name == other.record_name) == (one == other)


@given(METRICS, TEXTS, TEXTS)
def test_a_prefix_selects_a_namespace_and_a_name_exactly(metric: MetricId, namespace: str, name: str) -> None:
    assert metric.record_name.startswith(record_prefix(namespace)) == (metric.namespace == namespace)
    wanted = (metric.namespace, metric.name) == (namespace, name)
    assert metric.record_name.startswith(record_prefix(namespace, name)) == wanted
    assert (f"/{record_prefix(name)}" in metric.record_name) == (metric.name == name)


@given(METRICS)
def test_a_metric_is_the_same_in_whatever_order_its_dimensions_come(metric: MetricId) -> None:
    dimensions = metric_shape(metric)["Dimensions"]
    assert parse_metric(metric.namespace, metric.name, dimensions[::-1]) == metric
