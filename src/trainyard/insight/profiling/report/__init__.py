"""Writes the report on the profile of a job: a page, a notebook, and a file for each rule."""
