"""The rewrites of `topology.optimization`: changes of the graph of operators before it is written."""
