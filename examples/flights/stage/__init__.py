"""What `make demo` needs around the application: data, a player, a worker process, a display, and a truth to compare with."""
