"""The logger of hooks, trials and rules. SMDEBUG_LOG_LEVEL is one of debug, info, warning, error, critical and off."""

import logging
import os
import sys


def get_logger(name: str = "smdebug") -> logging.Logger:
    """Return the logger at the level that the environment sets: by default, warnings and errors go to stderr."""
    logger = logging.getLogger(name)
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("[%(asctime)s] %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(_level())
    return logger


def _level() -> int:
    word = os.environ.get("SMDEBUG_LOG_LEVEL", "warning").upper()
    if word == "OFF":
        return logging.CRITICAL + 1
    return logging.getLevelNamesMapping().get(word, logging.WARNING)
