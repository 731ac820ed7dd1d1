"""A notebook with a real kernel: jobs, their trials and tuning jobs show themselves until they have ended."""

from typing import Any

import nbclient
import nbformat

START = '''
from pathlib import Path

from trainyard.debugger import DebuggerHookConfig
from trainyard.pytorch import PyTorch
from trainyard.session import Session, get_execution_role
from trainyard.trial import create_trial
from trainyard.tuner import ContinuousParameter, HyperparameterTuner

Path("train.py").write_text("""
import argparse, time, torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=0.05)
parser.add_argument("--pause", type=float, default=0)
options = parser.parse_args()
torch.set_num_threads(1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=options.rate)
for step in range(100):
    loss = nn.functional.mse_loss(model(torch.ones(4, 4)), torch.ones(4, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss={loss.item():.5f};", flush=True)
    time.sleep(options.pause)
""")


def estimator(**options):
    return PyTorch(
        "train.py",
        framework_version="2.6",
        py_version="py312",
        role=get_execution_role(),
        instance_count=1,
        instance_type="ml.m5.large",
        metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+);"}],
        **options,
    )


trained = estimator(hyperparameters={"pause": 0.1}, debugger_hook_config=DebuggerHookConfig())
trained.fit(wait=False)
job = trained.latest_training_job
'''
TRIAL = "trial = create_trial(trained.latest_job_debugger_artifacts_path(), timeout_s=120)\ntrial"
TUNER = """
tuner = HyperparameterTuner(
    estimator(), "loss", {"rate": ContinuousParameter(0.01, 0.1)}, objective_type="Minimize", max_jobs=2
)
tuner.fit(wait=False)
tuner
"""
# Both are used here while other threads show them.
WAIT = """
import threading

job.wait(logs=False)
trial.refresh()
assert trial.steps(known=True)[-1] == 99
tuner.wait()
for thread in threading.enumerate():
    if thread.name == "trainyard-notebook":
        thread.join()
"""
UNUSED = "estimator()"
MISSING = "type(job)(trained.session.api, 'no-such-job')"
LIVE = ">Live</div>"


def main() -> None:
    sources = (START, "job", TRIAL, TUNER, WAIT, UNUSED, MISSING)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3")
    started, job, trial, tuner, waited, unused, missing = notebook.cells
    with client.setup_kernel():
        first = []
        for number, cell in enumerate(notebook.cells):
            client.execute_cell(cell, number)
            if cell in (job, trial, tuner):
                first.append(shown(cell))
    assert not started.outputs, started.outputs
    for html, _ in first:
        assert html.endswith(LIVE), html
    assert "InProgress" in first[0][0]
    assert "in progress" in first[1][0]
    assert "InProgress" in first[2][0]
    # Later messages of the kernel, while it ran other cells, have replaced the outputs of these.
    html, text = shown(job)
    assert text.endswith(": Completed>"), text
    assert all(part in html for part in ("Completed", "<svg", "pause=0.1")), html
    assert LIVE not in html, html
    html, _ = shown(trial)
    assert all(part in html for part in ("has ended", "100, the last is 99", "<svg")), html
    assert LIVE not in html, html
    html, text = shown(tuner)
    assert text.endswith(": Completed>"), text
    assert all(part in html for part in ("Completed", "minimize loss", "rate=")), html
    assert LIVE not in html, html
    # No thread has written a traceback or a warning.
    assert {output.get("name") for output in waited.outputs} <= {"stdout"}, waited.outputs
    # What has no job yet is shown as any other object, and a job that does not exist as one sentence.
    (output,) = unused.outputs
    assert (output.output_type, list(output.data)) == ("execute_result", ["text/plain"]), output
    assert shown(missing)[1] == "This cannot be shown: Requested resource not found.", missing


def shown(cell: Any) -> tuple[str, str]:
    """Return the only output of a cell, as HTML and as text."""
    (output,) = cell.outputs
    assert output.output_type == "display_data", output
    return output.data["text/html"], output.data["text/plain"]


main()
