"""The results of an instance: artifacts in the object store, and the failure card if it did not complete."""
