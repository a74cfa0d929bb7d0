"""`millpond query`: the command and its output as tables or JSON."""
