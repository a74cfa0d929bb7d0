"""The configuration of a worker: where settings come from, their types, and what librdkafka gets of them."""
