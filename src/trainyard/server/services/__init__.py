"""One module per AWS service: each translates the wire to values and back."""
