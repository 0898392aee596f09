"""API keys and roles: authentication and authorization of clients."""
