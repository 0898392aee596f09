"""Queries that combine tables, for snapshots, builds and pages."""
