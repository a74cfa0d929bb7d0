"""Several workers of one application on this machine: `millpond dev --workers N`.

One process, the session, starts a coordinator and the workers, each as a child process, restarts those that end, and
shows their state. `supervisor` runs the processes, `observer` collects their status, `view` shows it, `actions` lists
the actions of keys and of other terminals (scale, kill, drain and so on).
"""
