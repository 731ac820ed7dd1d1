"""Signing in, by a key pair or a one-time link, and signing out."""
