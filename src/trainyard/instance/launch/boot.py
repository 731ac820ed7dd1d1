"""How a Python starts with a part of a launcher, and with nothing else."""


def boot(module: str) -> str:
    """What `python -I -S -c` is given, with the package as its first word, to run `main` of a module of launch.

    As the keeper, it enters the package past its __init__.
    """
    return (
        "import sys; package = sys.modules['trainyard'] = type(sys)('trainyard'); package.__path__ = sys.argv[1:2]; "
        f"from trainyard.instance.launch.{module} import main; main()"
    )
