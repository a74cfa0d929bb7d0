"""One commit: records on their way out, the pipeline to the transaction, and records that a broker rejects."""
