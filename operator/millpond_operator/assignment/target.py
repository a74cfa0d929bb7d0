"""Where everything should be in the end."""

from __future__ import annotations

from .actives import place_actives
from .candidates import Standing
from .model import AssignmentOptions, Placement, Situation
from .standbys import place_standbys

__all__ = ("target",)


def target(situation: Situation, options: AssignmentOptions, previous: Placement) -> Placement:
    """The placement to aim at: balanced, with standbys spread over racks and tags, and otherwise as it was.

    Active tasks of any two workers differ by one at most, in each sub-topology, over the stateful tasks, over the
    stateless ones, and in all. Where tasks of a sub-topology differ in weight, exchanges even the weights out as well.
    How far copies have come does not count, except that a task goes where its state is when it may go anywhere:
    `refine` sees to when it goes. Only placeable workers get anything.

    The result is as good for the next `previous` as it gets: with an unchanged situation it comes out again.

    Args:
        situation: what is known now.
        options: the application's settings.
        previous: the last target. What `refine` made of it serves too, after a restart say, and so does an empty
            placement: then owners and reported roles tell what is under way.
    """
    standing = Standing(situation, options.acceptable_lag)
    active = place_actives(situation, standing, previous)
    return Placement(active, place_standbys(situation, standing, options, active, previous))
