"""Tables of users: schema, declaration, table."""
