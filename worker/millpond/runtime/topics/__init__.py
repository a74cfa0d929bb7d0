"""The topics of an application: what it needs, what there is, and what changes while workers run."""
