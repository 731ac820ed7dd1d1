"""What can be done to one job from the head of its pages: stop, interrupt, clone, compare, tag, delete."""
