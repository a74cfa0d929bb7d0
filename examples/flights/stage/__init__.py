"""What `make demo` needs around the application: data, a player, the workers, a display, and a truth to compare with."""
