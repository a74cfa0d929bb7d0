"""The topics of an application: which it needs, which exist, and which change while workers run."""
