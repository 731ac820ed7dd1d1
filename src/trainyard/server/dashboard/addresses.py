"""Addresses that several parts of the dashboard name."""

HOME_PAGE = "/-/jobs"
SIGN_IN_PAGE = "/-/sign-in"
