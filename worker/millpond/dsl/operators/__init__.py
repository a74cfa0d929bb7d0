"""The bodies of the DSL's operators. Each body binds to one plain nested function per task, which runs per record."""
