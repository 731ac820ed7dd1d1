"""Charts of a profile for notebooks, drawn by Bokeh, with the names and arguments of AWS's."""
