"""What a program uses that runs a worker in its own process: thread, start and close, failures, reads of stores."""
