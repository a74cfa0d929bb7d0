"""The page `docs/rights.md`, from the table of rights."""

from __future__ import annotations

from .table import RIGHTS, Part, Right

__all__ = ("markdown",)

_HEAD = """# Rights in Kafka

<!-- Written by `millpond acls --markdown`; edit table.py and page.py in worker/millpond/cli/acls. -->

An application needs the rights of the first table below, for one user of Kafka. This prints the least of them, for a
given application and its settings:

```sh
millpond acls app:build --principal User:alice
```

The output is a shell script of `kafka-acls.sh` lines, with a comment for each right. Run it as a user that may change
rules: add `--command-config FILE` to the lines if that user needs credentials. With Strimzi:

```sh
millpond acls app:build --principal User:alice --output strimzi --cluster my-cluster > kafka-user.yaml
```

- The rules follow from the topology and from `application.id`, `processing.guarantee` and
  `errors.dead.letter.queue.topic.name`. Without `--principal`, the user is the one in `sasl.username`. No broker is
  asked.
- Internal topics and transactional ids are granted by their prefix, `<application.id>-`, since topics come and go
  with stores, and each worker has its own id. The prefix includes applications whose ids begin with it, as
  `orders-eu-` begins with `orders-`: choose ids so that none begins with another one and a hyphen.
- Topics that match a pattern, or that a function or a handler of your own chooses, are not known. The output says so;
  `--reads TOPIC` and `--writes TOPIC` add them, and `TOPIC*` stands for all whose names begin so. A pattern matches
  only the topics that the user may see.
- `--for snapshot`, `--for reset` and so on print the rights of other parts; it may be repeated. A cleanup by the
  operator (`deletion.kafka: Delete`) runs with the credentials of the workers: print `--for worker --for delete`.
- The operator, its coordinator and the console have no access to Kafka and need no rights there. The same is true for
  `millpond status`, `tasks`, `drain`, `logs` and `query`, which ask workers or the coordinator; and for `catalog` and
  `snapshot list`, which read an object store.
- `millpond consume` and `state verify` use no group and need no right to one.
- `helm test` with brokers needs rights to names that begin with `millpond-canary-`: Create, Delete, Read, Write and
  DescribeConfigs on topics, Read and Delete on groups, and Write on transactional ids.

When a right is missing, the error or warning names the user as the settings do, the operation and the resource:

> cannot begin transactions: Broker: Transactional Id authorization failed. User:alice lacks Write on transactional
> ids that begin with 'orders-': grant it, as `millpond acls` prints it.

Brokers do not say whether a topic is missing or hidden from a user without rights, so the error about it has both
cures.

Read, Write and Delete include Describe, and AlterConfigs includes DescribeConfigs. On brokers older than 3.0 a
producer also needs IdempotentWrite on the cluster.
"""


def markdown() -> str:
    """Return the page."""
    return _HEAD + "".join(map(_section, Part))


def _section(part: Part) -> str:
    rows = [each for each in RIGHTS if each.part is part]
    return (
        f"\n## {part.described[0].upper()}{part.described[1:]}\n\n"
        f"`millpond acls app:build --for {part.value}`\n\n"
        "| resource | which | operation | for | without it |\n|---|---|---|---|---|\n" + "".join(map(_row, rows))
    )


def _row(right: Right) -> str:
    why = f"{right.why} (only then)" if right.optional else right.why
    return f"| {right.scope.resource} | {right.scope.value} | {right.operation} | {why} | {right.without} |\n"
