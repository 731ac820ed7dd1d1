"""Reads a column that its table does not have."""

import logging

ROWS = [{"pixels": [0.0] * 64, "digit": 7}, {"pixels": [0.5] * 64, "digit": 3}]

logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
logging.info("reading %d rows", len(ROWS))


def read_labels(rows: list[dict[str, object]], column: str) -> list[object]:
    return [row[column] for row in rows]


logging.warning("the column 'split' is missing; all rows are used for training")
labels = read_labels(ROWS, "label")
