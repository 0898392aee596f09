"""Verbs that make, configure and serve a lake."""
