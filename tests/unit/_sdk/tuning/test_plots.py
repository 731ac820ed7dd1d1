import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tuning_answers import RANGES, definition, description, trial
from trainyard._sdk.tuning.plots import Plots, study_of
from trainyard.foundation.errors import InvalidRequest, Unavailable

LEARNING_RATES = (0.00002, 0.0001, 0.0005, 0.002, 0.01, 0.05)


def trials(count: int = 12) -> list[dict[str, Any]]:
    found = []
    for number in range(1, count + 1):
        lr = LEARNING_RATES[number % len(LEARNING_RATES)]
        tuned = {"lr": repr(lr), "layers": str(number % 8 + 1), "opt": '"adam"' if number % 2 else '"sgd"'}
        found.append(trial(number, 0.9 - 5.0 * abs(lr - 0.002) - 0.01 * (number % 2), TunedHyperParameters=tuned))
    found.append(trial(count + 1, None, "Failed"))
    return found


@pytest.fixture(scope="module")
def plots() -> Plots:
    return Plots(study_of(description(), trials()))


def columns(chart: Any) -> list[dict[str, Any]]:
    """The data that a chart draws."""
    from bokeh.models import ColumnDataSource

    return [dict(source.data) for source in chart.select({"type": ColumnDataSource})]


def test_the_history_shows_every_measured_trial_and_the_best_so_far(plots: Plots) -> None:
    dots, best = columns(plots.history())
    if "text" not in dots:
        dots, best = best, dots
    assert dots["number"] == list(range(1, 13))
    assert dots["text"][0] == "layers=2 lr=0.0001 opt=adam"
    assert list(best["y"]) == sorted(best["y"])
    assert best["x"][-1] == 13, "the best lasts until the last trial"
    assert best["y"][-1] == max(dots["value"])


def test_a_trial_is_a_line_through_its_hyperparameters_to_its_objective(plots: Plots) -> None:
    chart = plots.parallel_coordinates()
    (lines,) = columns(chart)
    assert len(lines["ys"]) == 12
    assert all(len(line) == 4 and all(0.0 <= place <= 1.0 for place in line) for line in lines["ys"])
    assert sorted(chart.xaxis.major_label_overrides.values()) == ["acc", "layers", "lr", "opt"]


def test_importance_names_every_hyperparameter_and_how_far_to_trust_it(plots: Plots) -> None:
    chart = plots.importance()
    assert set(chart.y_range.factors) == {"lr", "layers", "opt"}
    assert chart.y_range.factors[-1] == "lr", "the most important is on top"
    assert re.search(r"the model explains \d+% of it", chart.title.text)


def test_there_is_a_slice_for_each_hyperparameter(plots: Plots) -> None:
    from bokeh.plotting import figure

    titles = [each.title.text for each in plots.slices().select({"type": figure})]
    assert sorted(titles) == ["layers", "lr", "opt"]


def test_a_contour_is_over_the_two_that_matter_most_or_those_named(plots: Plots) -> None:
    assert "lr" in plots.contour().title.text
    assert plots.contour("layers", "opt").title.text == "acc over layers and opt"
    assert plots.contour(y="layers").title.text == "acc over lr and layers"
    with pytest.raises(InvalidRequest, match='"lrr" is not a tuned hyperparameter; the tuned ones are layers, lr, opt'):
        plots.contour("lrr")


def test_the_timeline_has_a_bar_for_every_trial_that_ran(plots: Plots) -> None:
    found = columns(plots.timeline())
    assert sorted(number for each in found for number in each["number"]) == list(range(1, 14))


def test_charts_are_saved_as_a_page_that_needs_nothing_else(plots: Plots, tmp_path: Path) -> None:
    path = tmp_path / "study.html"
    plots.save(path)
    text = path.read_text()
    assert "<title>Tuning job study</title>" in text
    assert not re.findall(r'<(?:script|link)[^>]+(?:src|href)="', text), "no other file is asked for"
    document = re.search(r'<script type="application/json"[^>]*>\s*(.*?)\s*</script>', text, re.DOTALL)
    assert document is not None
    assert "Best: acc 0.8925 with layers=3 lr=0.0005 opt=sgd, trial 2" in json.dumps(json.loads(document[1]))
    plots.save(path, plots.history())
    assert path.stat().st_size > 100_000


def test_of_several_algorithms_that_of_the_best_trial_is_drawn() -> None:
    objective = {"Type": "Minimize", "MetricName": "loss"}
    told = description()
    config = told["HyperParameterTuningJobConfig"]
    del config["ParameterRanges"], config["HyperParameterTuningJobObjective"], told["TrainingJobDefinition"]
    own = {"TuningObjective": objective, "HyperParameterRanges": RANGES}
    only = {"IntegerParameterRanges": [{"Name": "depth", "MinValue": "1", "MaxValue": "9"}]}
    told["TrainingJobDefinitions"] = [
        definition(DefinitionName="net", **own),
        definition(DefinitionName="trees", TuningObjective=objective, HyperParameterRanges=only),
    ]
    trees = [
        trial(number, number / 10, TunedHyperParameters={"depth": str(number)}, TrainingJobDefinitionName="trees")
        for number in range(1, 9)
    ]
    nets = [{**each, "TrainingJobDefinitionName": "net"} for each in trials()]
    plots = Plots(study_of(told, [*nets, *trees]))
    assert plots.importance().y_range.factors == ["depth"]
    assert set(plots.importance("net").y_range.factors) == {"lr", "layers", "opt"}
    with pytest.raises(InvalidRequest, match='study has no algorithm "tree"; it has net, trees'):
        plots.slices("tree")


@pytest.mark.parametrize("count", [0, 2])
def test_a_study_that_has_hardly_begun_can_be_drawn(count: int, tmp_path: Path) -> None:
    Plots(study_of(description("InProgress"), trials(count)[:count])).save(tmp_path / "study.html")
    assert "No data to draw" in (tmp_path / "study.html").read_text()


def test_values_that_are_not_finite_are_left_out() -> None:
    plots = Plots(study_of(description(), [trial(1, float("nan")), trial(2, float("inf")), trial(3, 0.5)]))
    assert plots.study.best is not None
    assert plots.study.best.number == 3


def test_without_bokeh_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trainyard._sdk.tuning.charts", None)
    monkeypatch.delattr("trainyard._sdk.tuning.charts", raising=False)
    with pytest.raises(Unavailable, match=r"pip install 'trainyard\[plots\]'"):
        Plots(study_of(description(), trials())).history()
