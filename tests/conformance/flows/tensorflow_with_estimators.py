"""A real TensorFlow training with its estimator. Its argument is the estimator's package: sagemaker or trainyard."""

import importlib
import io
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

TRAIN = """
import argparse, csv, os
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--model_dir")
options = parser.parse_args()
with open(os.path.join(os.environ["SM_CHANNEL_TRAINING"], "digits.csv")) as file:
    table = tf.constant([[float(value) for value in row] for row in csv.reader(file)])
images, labels = table[:, :64] / 16, tf.cast(table[:, 64], tf.int32)
tf.keras.utils.set_random_seed(1)
model = tf.keras.Sequential([tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(10)])
measure = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer="adam", loss=measure, metrics=["accuracy"])
for epoch in range(options.epochs):
    history = model.fit(images, labels, epochs=1, batch_size=32, verbose=0).history
    print(f"loss: {history['loss'][0]:.4f} accuracy: {history['accuracy'][0]:.4f}", flush=True)
print("tensorflow", tf.__version__, "model_dir", options.model_dir)
model.save(os.path.join(os.environ["SM_MODEL_DIR"], "digits.keras"))
model.export(os.path.join(os.environ["SM_MODEL_DIR"], "1"))
"""


def main(package: str, digits: str) -> None:
    root = importlib.import_module(package)
    session = root.Session()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(TRAIN)
        job = importlib.import_module(f"{package}.tensorflow").TensorFlow(
            entry_point=str(script),
            role=root.get_execution_role(session),
            framework_version="2.11",
            py_version="py39",
            instance_count=1,
            instance_type="ml.m5.xlarge",
            hyperparameters={"epochs": 4},
            metric_definitions=[
                {"Name": "train:loss", "Regex": r"loss: ([0-9\.]+)"},
                {"Name": "train:accuracy", "Regex": r"accuracy: ([0-9\.]+)"},
            ],
            sagemaker_session=session,
        )
        job.fit(session.upload_data(digits, key_prefix="digits"))
    final = {
        metric["MetricName"]: metric["Value"] for metric in job.latest_training_job.describe()["FinalMetricDataList"]
    }
    assert final["train:accuracy"] > 0.8, final
    names = archived(session, job.model_data)
    assert {"digits.keras", "1/saved_model.pb"} <= names, names


def archived(session: Any, uri: str) -> set[str]:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    with tempfile.TemporaryDirectory() as folder:
        session.download_data(folder, bucket, key)
        body = io.BytesIO((Path(folder) / "model.tar.gz").read_bytes())
    with tarfile.open(fileobj=body) as archive:
        return {name.removeprefix("./") for name in archive.getnames()}


main(*sys.argv[1:])
