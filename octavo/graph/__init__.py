"""The language of programs: graph, table of operations, program. Knows no model and no backend."""
