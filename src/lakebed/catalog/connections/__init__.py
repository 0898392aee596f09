"""Connections to SQLite and PostgreSQL: dialects, hanging servers, round trips."""
