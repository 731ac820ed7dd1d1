"""Says that the original's files are not what hooks write here."""

from ..absence import not_served

__getattr__ = not_served(__name__, "IndexReader", "LocalIndexReader", "S3IndexReader")
