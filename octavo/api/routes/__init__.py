"""One file per group of routes."""
