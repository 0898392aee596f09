"""User tables of JSON records: schema, validation, insert, upsert."""
