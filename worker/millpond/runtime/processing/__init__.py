"""Processing: the path of a record through one task, from the bytes of an input to rows of the outbox, without I/O."""
