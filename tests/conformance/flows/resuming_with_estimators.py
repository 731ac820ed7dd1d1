"""Jobs that resume from others with estimators, from checkpoints and from a model; and time limits.

Its argument is the package of the estimators: sagemaker or trainyard.
"""

import importlib
import io
import sys
import tempfile
import time
import uuid
import zipfile
from typing import Any

estimating: Any = importlib.import_module("estimating")
digest = estimating.digest

TRAIN = """
import argparse, hashlib, json, os, pathlib, tarfile, torch

parser = argparse.ArgumentParser()
parser.add_argument("--until", type=int)
parser.add_argument("--kept", default="/opt/ml/checkpoints")
options = parser.parse_args()
torch.manual_seed(3)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
kept, began = pathlib.Path(options.kept, "last.pt"), 0
if kept.exists():
    state = torch.load(kept)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    began = state["step"]
if "SM_CHANNEL_MODEL" in os.environ:
    folder = pathlib.Path(os.environ["SM_CHANNEL_MODEL"])
    with tarfile.open(folder / "model.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    model.load_state_dict(torch.load(folder / "model.pt"))
for step in range(began, options.until):
    inputs = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
    optimizer.zero_grad()
    (model(inputs) - inputs.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
if kept.parent.is_dir():
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, kept)
torch.save(model.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))
weights = [value.hex() for value in torch.cat([each.flatten() for each in model.parameters()]).tolist()]
saved = hashlib.sha256(kept.read_bytes()).hexdigest() if kept.exists() else ""
told = {"began": began, "weights": weights, "saved": saved}
pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], "told.json").write_text(json.dumps(told))
"""


def main(package: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kit = estimating.kit_of(package, folder)
        whole = trained(kit, until=20)
        goes_on_from_checkpoints(kit, whole)
        goes_on_from_a_model(kit)
        has_its_time(kit)
        cannot_wait_less_than_it_runs(kit)


def goes_on_from_checkpoints(kit: Any, whole: dict[str, Any]) -> None:
    """Two jobs of ten steps give the weights of one of twenty, bit for bit, in the default folder and in another."""
    for path in (None, "/state"):
        uri = f"s3://{kit.bucket}/{uuid.uuid4().hex}/checkpoints"
        kept = {"checkpoint_s3_uri": uri, "checkpoint_local_path": path}
        first = trained(kit, until=10, path=path, **kept)
        stored = kit.stored(uri)
        assert {name: digest(body) for name, body in stored.items()} == {"last.pt": first["saved"]}
        assert zipfile.is_zipfile(io.BytesIO(stored["last.pt"])), "the file is as torch saved it"
        second = trained(kit, until=20, path=path, **kept)
        assert (first["began"], second["began"]) == (0, 10)
        assert second["weights"] == whole["weights"] != first["weights"]
        assert {name: digest(body) for name, body in kit.stored(uri).items()} == {"last.pt": second["saved"]}


def goes_on_from_a_model(kit: Any) -> None:
    """The model channel has the archive of an earlier job, under another name if one is given."""
    first = job_of(kit, until=10)
    first.fit(logs=False)
    second = job_of(kit, until=1, model_uri=first.model_data)
    second.fit(logs=False)
    (before,), (after,) = kit.told(first), kit.told(second)
    assert before["weights"] != after["weights"]
    assert after["weights"] != trained(kit, until=1)["weights"], "it did not start from scratch"
    named = kit.estimator(estimating.TELL, model_uri=first.model_data, model_channel_name="pretrained")
    named.fit(logs=False)
    body = kit.stored(first.model_data.removesuffix("/model.tar.gz"))["model.tar.gz"]
    assert kit.told(named) == [{"pretrained": {"model.tar.gz": digest(body)}}]


def has_its_time(kit: Any) -> None:
    job = kit.estimator("import time\ntime.sleep(600)", max_run=2)
    job.fit(wait=False)
    deadline = time.monotonic() + 90
    while (now := job.latest_training_job.describe())["TrainingJobStatus"] in ("InProgress", "Stopping"):
        assert time.monotonic() < deadline, now
        time.sleep(0.5)
    assert (now["TrainingJobStatus"], now["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")


def cannot_wait_less_than_it_runs(kit: Any) -> None:
    for limits, said in (({"max_run": 600, "max_wait": 60}, "600"), ({"max_run": 600}, "MaxWait")):
        job = kit.estimator("print('never')", use_spot_instances=True, **limits)
        refused = ""
        try:
            job.fit(wait=False)
        except Exception as error:
            # Each package has its own error.
            refused = str(error)
        assert said in refused or "max_wait" in refused, refused


def trained(kit: Any, *, until: int, path: str | None = None, **options: Any) -> dict[str, Any]:
    job = job_of(kit, until=until, path=path, **options)
    job.fit(logs=False)
    (told,) = kit.told(job)
    return dict(told)


def job_of(kit: Any, *, until: int, path: str | None = None, **options: Any) -> Any:
    hyperparameters = {"until": until} | ({"kept": path} if path else {})
    return kit.estimator(TRAIN, hyperparameters=hyperparameters, **options)


main(sys.argv[1])
