"""Jobs as the records store them, one module per kind, for the services and the control loops alike."""
