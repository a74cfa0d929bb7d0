"""The path of a record through one task: from its bytes in an input to rows of the outbox. No I/O."""
