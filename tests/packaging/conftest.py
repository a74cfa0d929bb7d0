"""What tests here need besides Python."""

from tests.support.fixtures import own_broker, own_brokers, processes  # noqa: F401  (fixtures)
