"""Virtual environments with pinned clients, one per client that must not share packages with the others.

They are created on demand in `.environments/` and kept until a pin or the Python version changes. As a program,
`python -m tests.conformance.environments NAME…` creates the named ones, or lists all with their pins.
"""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ENVIRONMENTS = REPOSITORY / ".environments"

REQUIREMENTS: dict[str, tuple[str, ...]] = {
    "main": ("sagemaker==2.257.7", "boto3==1.44.0", "sagemaker-experiments==0.1.45", "awscli==1.46.2"),
    # simple-sagemaker calls a private function that sagemaker changed in 2.148, hence an environment of its own.
    "ssm": ("sagemaker==2.140.0", "simple-sagemaker==0.9.24", "boto3==1.44.0", "setuptools<70"),
    # Version 3 has no estimators: ModelTrainer and remote functions are all that it shares with 2.257. Jobs of remote
    # functions run in this environment too.
    "sagemaker3": ("sagemaker==3.27.0", "boto3==1.44.0"),
    # The last minor versions before botocore spoke JSON to CloudWatch, and before checksums were on by default.
    "boto3-old": ("boto3==1.35.99",),
    "s3fs": ("s3fs==2026.9.0",),
    "obstore": ("obstore==0.12.1",),
    # Without TensorFlow, TensorBoard reads s3:// through boto3; pkg_resources left setuptools in version 81.
    "tensorboard": ("tensorboard==2.21.0", "boto3==1.44.0", "setuptools<81"),
    # The peer of the tuning page in benchmarks/dashboard_peers.py.
    "optuna-dashboard": ("optuna-dashboard==0.21.0", "optuna==5.0.0"),
    # AWS's own library for tensors. It declares none of the next three, and breaks with later versions of the others.
    "smdebug": (
        "smdebug==1.0.34",
        "requests",
        "psutil",
        "pandas",
        "protobuf==3.20.3",
        "numpy==2.2.6",
        "torch==2.13.0",
        "xgboost-cpu==3.2.0",
        "setuptools<81",
    ),
    # Frameworks that the hook has adapters for; Keras runs on JAX and torch here, and on TensorFlow below.
    "jax": ("jax[cpu]==0.10.2", "keras==3.15.1", "torch==2.13.0"),
    # Not a client: the environment that jobs of the TensorFlow image run in.
    "tensorflow": ("tensorflow-cpu==2.21.0",),
    # Not a client either, but a peer in the benchmarks and the cluster of the Ray engine.
    "ray": ("ray[default]==2.60.0",),
    # The peers of benchmarks/tuning; numpy and scipy are what our own strategy needs.
    "tuning": (
        "torch==2.13.0",
        "optuna==5.0.0",
        "cmaes==0.13.1",
        "botorch==0.18.1",
        "scipy==1.17.1",
        "numpy==2.4.6",
        "scikit-learn==1.9.1",
        "dill==0.4.1",
        "pandas==3.1.1",
        "psutil==7.2.2",
        "sortedcontainers==2.4.0",
        "tqdm==4.70.1",
    ),
    # Peers of benchmarks/sampler.py and benchmarks/trace_tables.py.
    "psutil": ("psutil==7.2.2",),
    "torch-tb-profiler": ("torch-tb-profiler==0.4.3", "tensorboard==2.21.0", "pandas==2.3.3", "setuptools<81"),
    # A kernel, the client that executes notebooks in it, and what our SDK imports; test_notebooks.py has it read src.
    "jupyter": (
        "ipykernel==7.4.0",
        "ipython==9.18.1",
        "nbclient==0.11.0",
        "nbformat==5.11.1",
        "botocore==1.44.0",
        "regex==2026.11.15",
        "cbor2==6.2.1",
        "numpy==2.4.6",
    ),
    # For `make demo`; small, so that it installs quickly.
    "demo": ("awscli==1.46.2", "boto3==1.44.0"),
    "moto": ("moto[server]==5.2.5", "boto3==1.44.0"),
}

# Installed without what they require. Syne Tune requires xgboost, which brings CUDA libraries with it, and which its
# Gaussian process does not use; what that does use is named above.
ALONE: dict[str, tuple[str, ...]] = {"tuning": ("syne-tune==0.16.0",)}

# The version of torch for clients that need it.
CONSTRAINTS = ("torch==2.13.0",)


class PinsNotInstalled(Exception):
    """Pip could not install the pins; the message is its last output."""


def interpreter(name: str) -> Path:
    """Return the Python of an environment, which is created first if it is missing or its pins have changed."""
    folder = ENVIRONMENTS / name
    stamp, wanted = folder / "pins", _fingerprint(name)
    with _locked(name):
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            _make(name, folder)
            stamp.write_text(wanted)
    return folder / "bin" / "python"


def _fingerprint(name: str) -> str:
    pins = "\n".join((*REQUIREMENTS[name], *ALONE.get(name, ()), *CONSTRAINTS, sys.version))
    return hashlib.sha256(pins.encode()).hexdigest()


@contextmanager
def _locked(name: str) -> Iterator[None]:
    """Let only one process at a time create an environment; test workers request the same ones at once."""
    ENVIRONMENTS.mkdir(exist_ok=True)
    with (ENVIRONMENTS / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(name: str, folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(CONSTRAINTS))
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _install(name, [*pip, "--constraint", str(constraints), *REQUIREMENTS[name]])
    if name in ALONE:
        _install(name, [*pip, "--no-deps", *ALONE[name]])


def _install(name: str, command: list[str]) -> None:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise PinsNotInstalled(f'The environment "{name}" could not be made:\n{run.stderr[-2000:]}')


def main(names: list[str]) -> None:
    for name in names:
        print(interpreter(name))
    if not names:
        for name, pins in REQUIREMENTS.items():
            print(f"{name:12} {' '.join((*pins, *ALONE.get(name, ())))}")


if __name__ == "__main__":
    main(sys.argv[1:])
