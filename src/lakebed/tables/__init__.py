"""Users' tables: schema, insert, fold, delete, erase, import."""
