"""Stream-stream joins: their windows, their options, and their part of the graph."""
