"""The decisions of one application's coordinator, as a pure state machine: no clock, no threads, no I/O."""
