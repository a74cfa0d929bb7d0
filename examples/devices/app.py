"""Thermometers of cold stores: which of them are offline, and what they measured last."""

from datetime import UTC, datetime, timedelta

import millpond as mp

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMEOUT = timedelta(minutes=5)
TIMEOUT_MS = TIMEOUT // timedelta(milliseconds=1)


class Reading(mp.Struct):
    celsius: float


class Device(mp.Struct):
    """What is known of a device. Queries read it."""

    celsius: float
    seen_ms: int  # time of the latest reading
    online: bool = True


class Status(mp.Struct):
    """A device is online or offline since a time."""

    online: bool
    since: datetime


class Watch(mp.Processor[str, Reading, str, Status]):
    """Forwards a status when a device appears, goes offline, or comes back."""

    stores = (mp.KeyValueStoreBuilder(name="devices", key=mp.String, value=mp.Json(Device)),)

    def init(self, context: mp.ProcessorContext[str, Status]) -> None:
        self.forward = context.forward
        self.devices = context.get_state_store("devices", mp.KeyValueStore[str, Device])
        self.offline = context.metrics.gauge("devices_offline", "Devices that are offline.")
        context.schedule(timedelta(minutes=1), mp.PunctuationType.STREAM_TIME, self.find_silent)
        context.schedule(timedelta(seconds=10), mp.PunctuationType.WALL_CLOCK_TIME, self.measure)

    def process(self, record: mp.Record[str, Reading]) -> None:
        device = self.devices.get(record.key)
        online = False
        if device is not None:
            if record.timestamp <= device.seen_ms:
                return  # late, or sent twice: a later reading is known
            online = device.online and record.timestamp - device.seen_ms < TIMEOUT_MS
            if device.online and not online:  # an outage that no punctuation has seen
                self.report(record.key, device.seen_ms + TIMEOUT_MS, online=False)
        if not online:
            self.report(record.key, record.timestamp, online=True)
        self.devices.put(record.key, Device(record.value.celsius, record.timestamp))

    def find_silent(self, stream_time_ms: int) -> None:
        for key, device in list(self.devices.all()):
            if device.online and stream_time_ms - device.seen_ms >= TIMEOUT_MS:
                self.report(key, device.seen_ms + TIMEOUT_MS, online=False)
                self.devices.put(key, mp.replace(device, online=False))

    def report(self, key: str, since_ms: int, *, online: bool) -> None:
        status = Status(online, EPOCH + timedelta(milliseconds=since_ms))
        self.forward(mp.Record(key, status, since_ms))

    def measure(self, _now_ms: int) -> None:
        self.offline.set(sum(not device.online for _, device in self.devices.all()))


def devices() -> mp.Topology:
    builder = mp.StreamsBuilder()
    readings = builder.stream("readings", key=mp.String, value=mp.Json(Reading))
    readings.process(Watch, name="watch").to("device-status", key=mp.String, value=mp.Json(Status))
    return builder.build()
