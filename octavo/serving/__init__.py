"""Use cases, one a file: between the wire and the engine. Knows no HTTP."""
