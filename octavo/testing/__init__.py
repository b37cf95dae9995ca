"""Doubles and tiny models, for our tests and for anyone's."""
