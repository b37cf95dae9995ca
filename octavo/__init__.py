"""Octavo: an inference server for local models. Importing it is cheap; rooms load on first use."""

__version__ = "0.1.0"
