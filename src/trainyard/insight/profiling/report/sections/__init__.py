"""The sections of the page, each from what it is about to HTML. A section that has nothing to say is None."""
