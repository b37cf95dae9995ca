"""Requests, scheduler, paged cache and the engine thread. Knows no HTTP, JSON or templates."""
