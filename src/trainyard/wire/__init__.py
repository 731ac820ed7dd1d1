"""The AWS protocols as data: models, parsing, validation, serialising, signatures. Knows no job."""
