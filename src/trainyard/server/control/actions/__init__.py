"""What is done when a rule finds something: asked for with the finding, carried out by a worker, tried again."""
