"""Stored rows of users' tables: read, published, and held by snapshots."""
