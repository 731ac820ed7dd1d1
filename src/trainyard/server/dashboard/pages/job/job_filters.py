"""Filters of the list of jobs that the page of one job links to."""

import re

_ESCAPED = re.compile(r'["\\]')
# Lists keep this much of the reason of a failure.
_FAILURE_LENGTH = 300


def tag_filter(key: str, value: str) -> str:
    """Return a filter that finds the jobs with this tag."""
    return f"tag:{_quote_text(key)}={_quote_text(value)}" if value else f"tag:{_quote_text(key)}"


def failure_filter(summary: str) -> str:
    """Return a filter that finds the jobs that failed with this summary; empty if there is none."""
    cause = summary.partition("\n")[0][:_FAILURE_LENGTH]
    return f"status:failed kind:training failure={_quote_text(cause)}" if cause else ""


def _quote_text(text: str) -> str:
    return '"' + _ESCAPED.sub(r"\\\g<0>", text) + '"'
