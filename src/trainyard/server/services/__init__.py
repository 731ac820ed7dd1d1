"""One module or folder per AWS service. Each translates between the wire and the values of the yard."""
