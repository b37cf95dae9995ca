"""The wire: HTTP routes, schemas, server-sent events, errors, life cycle."""
