"""Verbs that data passes through: land, build, query."""
