"""Programs: what a model does, recorded once. Knows no model and no backend."""

from octavo.graph.graph import Graph
from octavo.graph.ops import OPS
from octavo.graph.program import CacheNeed, Op, Program, Value
from octavo.graph.semantics import RopeConfig

__all__ = ["OPS", "CacheNeed", "Graph", "Op", "Program", "RopeConfig", "Value"]
