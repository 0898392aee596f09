"""The truth in SQL, on SQLite (embedded) and PostgreSQL (shared). Only this package speaks SQL.

Each module owns one table or two; functions take the connection of a transaction that
`Catalog.read` or `Catalog.write` opened.
"""
