"""Record sets, at the place where the sagemaker SDK has them."""

from trainyard.inputs import FileSystemRecordSet

__all__ = ["FileSystemRecordSet"]
