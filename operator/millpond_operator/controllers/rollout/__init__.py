"""What to do next with an application's workers, from what is wanted and what is observed. Pure."""
