"""The AWS protocols as data: models, parsing, validation, serialising, signatures. It knows nothing of jobs."""
