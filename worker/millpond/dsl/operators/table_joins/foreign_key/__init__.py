"""The bodies of joins of two tables by a foreign key (KIP-213).

The left table *subscribes* to rows of the right one::

    left table ─> Subscribe ─> [registration topic] ─> KeepSubscription ─> AnswerSubscription ─┐
    right table ───────────────────────────────────────────────────> AnswerSubscribers ────────┤
    result <── ResolveResponse <── [response topic] <──────────────────────────────────────────┘

The registration topic is keyed by foreign key, so its records meet the right table's rows in one task. The response
topic is keyed by the left table's key, and has the same partitions. Between the two topics keys and values stay bytes.
"""
