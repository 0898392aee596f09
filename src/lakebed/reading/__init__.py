"""Leases, snapshots, and reading of footers and landed blocks."""
