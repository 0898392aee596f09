"""Schemas of users' tables: definitions and drafts."""
