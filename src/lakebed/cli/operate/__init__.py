"""Verbs for operators: upkeep, sweep, check, partitions, journal."""
