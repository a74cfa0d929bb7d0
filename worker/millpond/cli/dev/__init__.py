"""Several workers of one application on this machine: what is behind `millpond dev --workers N`.

One process, the session, starts a coordinator and the workers, each in a process of its own, restarts those that end,
and shows what they do. `supervisor` decides who runs, `observer` looks, `view` shows, `control` lets other terminals
say `scale`, `kill` and `drain`.
"""
