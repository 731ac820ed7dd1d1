"""Record sets, under the module path of the sagemaker SDK."""

from trainyard.inputs import FileSystemRecordSet

__all__ = ["FileSystemRecordSet"]
