"""Prints what estimators ask the profiler for. Its argument is their package: sagemaker or trainyard.

The same code makes the same objects from either package, with every combination of arguments. An error is printed as
such, without its words. No service is called.
"""

import importlib
import itertools
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

requests_of: Any = importlib.import_module("requests_of_estimators")

RANGES: dict[str, Sequence[Any]] = {
    "start_step": (None, 0, 3, -1, "1"),
    "num_steps": (None, 1, 4, 0),
    "start_unix_time": (None, 1700000000, 1.5),
    "duration": (None, 10, 2.5, 0),
    "profile_default_steps": (False, True),
}
KINDS = ("Detailed", "Dataloader", "Python", "Horovod", "SMDataParallel")


def main(package: str) -> None:
    debugger = importlib.import_module(f"{package}.debugger")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text("print('trains')")
        asked: list[Any] = []
        session = (
            requests_of.sagemaker_session(asked) if package == "sagemaker" else requests_of.trainyard_session(asked)
        )
        found = {
            "ranges": list(_ranges(debugger)),
            "profiles": list(_profiles(debugger)),
            "rules": list(_rules(debugger)),
            "jobs": list(_jobs(package, debugger, session, asked, folder)),
            "changes": list(_changes(package, debugger, session, asked, folder)),
        }
    print(json.dumps(found))


def _ranges(debugger: Any) -> Iterator[Any]:
    """Every combination of the arguments of each kind of profile."""
    for kind, values in itertools.product(KINDS, _products(RANGES)):
        yield kind, _shape(_range_text, getattr(debugger, f"{kind}ProfilingConfig"), **values)
    for regex in (".*", "a.*", "(", None):
        yield "regex", _shape(_range_text, debugger.DataloaderProfilingConfig, metrics_regex=regex)
    choices = {
        "python_profiler": (*debugger.PythonProfiler, "cprofile"),
        "cprofile_timer": (*debugger.cProfileTimer, "total_time"),
        "start_step": (None, 4),
        "profile_default_steps": (False, True, "yes"),
    }
    for values in _products(choices):
        yield "python", _shape(_range_text, debugger.PythonProfilingConfig, **values)


def _range_text(kind: Any, **values: Any) -> Any:
    return kind(**values).to_json_string()


def _profiles(debugger: Any) -> Iterator[Any]:
    """What a framework profile is made of, and how the configuration of the profiler has it."""
    files = {
        "local_path": ("/opt/ml/output/profiler", "/mine", 3),
        "file_max_size": (10485760, 1, 0),
        "file_close_interval": (60, 0.5, 0),
        "file_open_fail_threshold": (50, 2, 1.5),
    }
    for values in _products(files):
        yield _shape(_parameters, debugger, **values)
    steps = {name: values for name, values in RANGES.items() if name != "profile_default_steps"}
    for values in _products(steps):
        yield _shape(_parameters, debugger, **values)
    for chosen in itertools.product((False, True), repeat=len(KINDS)):
        made = {
            f"{kind.lower()}_profiling_config": getattr(debugger, f"{kind}ProfilingConfig")(start_step=number)
            for number, (kind, is_chosen) in enumerate(zip(KINDS, chosen, strict=True))
            if is_chosen
        }
        yield _shape(_parameters, debugger, **made, start_step=9)


def _parameters(debugger: Any, **values: Any) -> Any:
    return debugger.FrameworkProfile(**values).profiling_parameters


def _rules(debugger: Any) -> Iterator[Any]:
    """Every built-in rule with its defaults, and with other and wrong values."""
    configs, rule = debugger.rule_configs, debugger.ProfilerRule
    if debugger.__name__.startswith("sagemaker"):
        # The one rule that the package does not export.
        configs.Dataloader = importlib.import_module("smdebug_rulesconfig.profiler_rules.rules").Dataloader
    made: dict[str, Sequence[Mapping[str, Any]]] = {
        "BatchSize": ({}, {"cpu_threshold_p95": 10, "window": 7}, {"gpu_threshold_p95": 101}, {"patience": 0}),
        "CPUBottleneck": ({}, {"threshold": 0, "scan_interval_us": 1}, {"cpu_threshold": -1}),
        "Dataloader": ({}, {"min_threshold": 50, "max_threshold": 100}, {"min_threshold": 0}),
        "GPUMemoryIncrease": ({}, {"increase": 2.5, "window": 3}, {"increase": 0}),
        "IOBottleneck": ({}, {"io_threshold": 20, "gpu_threshold": 5}, {"io_threshold": 200}),
        "LoadBalancing": ({}, {"threshold": 0.2, "patience": 1}, {"threshold": -0.1}),
        "LowGPUUtilization": ({}, {"threshold_p95": 60, "threshold_p5": 5}, {"window": -1}),
        "MaxInitializationTime": ({}, {"threshold": 1}, {"threshold": 0}),
        "OverallSystemUsage": ({}, {"scan_interval_us": 5}, {"scan_interval_us": 0}),
        "StepOutlier": ({}, {"mode": "TRAIN", "stddev": 5, "n_outliers": 1}, {"mode": 3}, {"stddev": 0}),
        "ProfilerReport": (
            {},
            {"CPUBottleneck_threshold": 90, "stepoutlier_stddev": 4},
            {"threshold": 1},
            {"Nothing_threshold": 1},
            {"StepOutlier_nothing": 1},
            {"StepOutlier_stddev": 0},
        ),
    }
    for name, many in made.items():
        for values in many:
            for options in ({}, {"name": "Mine"}, {"s3_output_path": "s3://b/x", "container_local_output_path": "/x"}):
                yield name, _shape(_built_in, rule, getattr(configs, name), values, **options)
    custom: dict[str, Any] = {"name": "N", "image_uri": "i:1", "instance_type": "ml.t3.medium", "volume_size_in_gb": 3}
    choices: tuple[dict[str, Any], ...] = (
        {},
        {"source": "s3://b/r.py", "rule_to_invoke": "R", "rule_parameters": {"limit": 3}},
        {"source": "s3://b/r.py"},
        {"rule_parameters": {"a": "b"}, "s3_output_path": "s3://b/x"},
    )
    for options in choices:
        yield "custom", _shape(_custom, rule, **custom, **options)


def _built_in(rule: Any, config: Any, values: Mapping[str, Any], **options: Any) -> Any:
    return _rule_shape(rule.sagemaker(config(**values), **options))


def _custom(rule: Any, **options: Any) -> Any:
    return _rule_shape(rule.custom(**options))


def _jobs(package: str, debugger: Any, session: Any, asked: list[Any], source: str) -> Iterator[Any]:
    """What a job is asked to profile, with every combination of options."""
    configs: dict[str, Sequence[Any]] = {
        "s3_output_path": (None, "s3://b/profiles"),
        "system_monitor_interval_millis": (None, 500),
        "framework_profile_params": (None, debugger.FrameworkProfile(start_step=2)),
        "profile_params": (None, debugger.Profiler(cpu_profiling_duration="7")),
        "disable_profiler": (False, True),
    }
    report = debugger.ProfilerRule.sagemaker(debugger.rule_configs.ProfilerReport())
    overfit = debugger.Rule.sagemaker(debugger.rule_configs.overfit())
    own = debugger.ProfilerRule.custom("O", "i:1", "ml.t3.medium", 3, f"{source}/train.py", "Rule")
    torch = importlib.import_module(f"{package}.pytorch").PyTorch

    def request(values: Mapping[str, Any], rules: Any, is_off: bool) -> Any:
        job = torch(
            **_plain(session, source),
            rules=None if rules is None else list(rules),
            profiler_config=debugger.ProfilerConfig(**values),
            disable_profiler=is_off,
        )
        asked.clear()
        job.fit(wait=False)
        (params,) = [params for operation, params in asked if operation == "CreateTrainingJob"]
        return {name: value for name, value in params.items() if name.startswith("Profiler")}

    kinds = (None, (), (report,), (overfit,), (overfit, report, own))
    ways = list(itertools.product(kinds, (False, True)))
    # A job takes the real SDK a second, so not every configuration meets all rules.
    for values, (rules, is_off) in zip(_products(configs), itertools.cycle(ways), strict=False):
        yield _shape(request, values, rules, is_off)
    for rules, is_off in ways:
        yield _shape(request, {"system_monitor_interval_millis": 200}, rules, is_off)


def _changes(package: str, debugger: Any, session: Any, asked: list[Any], source: str) -> Iterator[Any]:
    """How the profiling of a running job is changed."""
    options: dict[str, Sequence[Any]] = {
        "rules": (None, [debugger.ProfilerRule.sagemaker(debugger.rule_configs.StepOutlier())], ["no rule"]),
        "system_monitor_interval_millis": (None, 200),
        "s3_output_path": (None, "s3://b/profiles"),
        "framework_profile_params": (None, debugger.FrameworkProfile(num_steps=2)),
        "disable_framework_metrics": (False, True),
    }
    torch = importlib.import_module(f"{package}.pytorch").PyTorch

    job = torch(**_plain(session, source), output_path="s3://b/out")
    job.fit(wait=False)

    def request(change: str, **values: Any) -> Any:
        asked.clear()
        getattr(job, change)(**values)
        (params,) = [params for operation, params in asked if operation == "UpdateTrainingJob"]
        return {name: value for name, value in params.items() if name.startswith("Profiler")}

    for values in _products(options):
        yield _shape(request, "update_profiler", **values)
    yield _shape(request, "disable_profiling")
    yield _shape(request, "enable_default_profiling")


def _plain(session: Any, source: str) -> dict[str, Any]:
    return {
        "role": requests_of.ROLE,
        "sagemaker_session": session,
        "source_dir": source,
        "entry_point": "train.py",
        "framework_version": "2.0.1",
        "py_version": "py310",
        "instance_count": 1,
        "instance_type": "ml.m5.large",
    }


def _products(choices: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


def _rule_shape(rule: Any) -> Any:
    if hasattr(rule, "to_profiler_rule_config_dict"):
        shape = rule.to_profiler_rule_config_dict()
        return shape | {"RuleEvaluatorImage": shape["RuleEvaluatorImage"].replace("DEFAULT_RULE_EVALUATOR_IMAGE", "")}
    return rule.shape(image_uri="", source_uri="")


def _shape(make: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Return what a call returns, with the same time and identifier in every name; "refused" if it raises."""
    try:
        text = json.dumps(make(*arguments, **options), sort_keys=True)
    except Exception:
        return "refused"
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", text)
    return json.loads(re.sub(r"Config-\d[\d-]+", "Config-TIME", text))


if __name__ == "__main__":
    main(sys.argv[1])
