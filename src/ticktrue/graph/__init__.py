"""Model -> graph: nodes, their builders, the dataflow digest of a graph, and the independent oracle."""
