"""The source text with which a fresh interpreter starts a module of this package."""

import os

# The folder of this package, which the text below takes as its first argument.
PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def boot_code(module: str, *, setup: str = "") -> str:
    """Return what `python -c` runs, with the package's folder as its first argument, to call `main()` of a module.

    The text makes an empty module `trainyard` with that folder as its path. So `trainyard/__init__.py`, which serves
    the SDK and imports more than a small process can wait for, is not run. `setup` are statements to run before.
    Python 3.8 can run the text and import this module, since some of the modules run on the Python of a job.
    """
    return (
        f"import sys; {setup and setup + '; '}"
        "package = sys.modules['trainyard'] = type(sys)('trainyard'); package.__path__ = sys.argv[1:2]; "
        f"from {module} import main; main()"
    )
