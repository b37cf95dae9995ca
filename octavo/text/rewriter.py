"""Puts counters into the syntax tree of a chat template: into loops and macros, and, as filters of
ours, around what Jinja2 compiles to plain Python: `~`, slices, keys, comparisons and `*args`.
"""

from collections.abc import Iterator

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

# Names of filters; with the space no template can name them.
TICK, CONCAT, CHARGED, MEASURED, HAYSTACK, SPREAD = (
    f"octavo {name}" for name in ("tick", "concat", "charged", "measured", "haystack", "spread")
)


class Rewriter(NodeTransformer):
    """Puts the counters in. A turn of a loop or a call of a macro also pays for its fixed text."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if node.test is not None:
            node.test = _filter(TICK, node.test, nodes.Const(0))
        return self._ticking(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return self._ticking(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return self._ticking(node)

    def _ticking(self, node: nodes.For | nodes.Macro | nodes.CallBlock) -> nodes.Node:
        size = sum(len(data.data) for part in node.body for data in _own_text(part))
        node.body.insert(0, nodes.ExprStmt(_filter(TICK, nodes.Const(None), nodes.Const(4 * size))))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filter(CONCAT, nodes.Tuple(node.nodes, "load"))

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            return _filter(CHARGED, node)
        node.arg = _operand(node.arg, MEASURED)  # a key's hash looks into nested tuples
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.key = _operand(node.key, MEASURED)
        return node

    def visit_Call(self, node: nodes.Call) -> nodes.Node:  # noqa: N802
        return self._spreading(node)

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:  # noqa: N802
        return self._spreading(node)

    def visit_Test(self, node: nodes.Test) -> nodes.Node:  # noqa: N802
        return self._spreading(node)

    def _spreading(self, node: nodes.Call | nodes.Filter | nodes.Test) -> nodes.Node:
        """`f(*values)` takes the values apart."""
        self.generic_visit(node)
        if node.dyn_args is not None:
            node.dyn_args = _filter(SPREAD, node.dyn_args)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _operand(node.expr, MEASURED)
        for part in node.ops:
            part.expr = _operand(part.expr, HAYSTACK if part.op in ("in", "notin") else MEASURED)
        return node


def _own_text(node: nodes.Node) -> Iterator[nodes.TemplateData]:
    if isinstance(node, nodes.TemplateData):
        yield node
    elif not isinstance(node, (nodes.For, nodes.Macro, nodes.CallBlock)):
        for child in node.iter_child_nodes():
            yield from _own_text(child)


def _operand(node: nodes.Expr, name: str) -> nodes.Expr:
    plain = isinstance(node, nodes.Const) or (
        isinstance(node, (nodes.List, nodes.Tuple))
        and all(isinstance(item, nodes.Const) for item in node.items)
    )
    return node if plain else _filter(name, node)


def _filter(name: str, node: nodes.Node, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None)
