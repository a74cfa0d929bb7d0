import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.ValueTransformerWithKey;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessingContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;

/** The processors of a case, by name. The same ones are in ours/processors.py. */
final class Processors {
    private Processors() { }

    private static String text(final Object it) { return Functions.text(it); }

    private static String kind(final String name) { return name.contains(":") ? name.substring(0, name.indexOf(':')) : name; }
    private static String argument(final String name) { return name.substring(name.indexOf(':') + 1); }

    /** What a store held for a key, after the value was put into it. */
    static String use(final Object store, final Object key, final Object value, final long time) {
        final String k = text(key);
        if (store instanceof TimestampedKeyValueStore) {
            final TimestampedKeyValueStore<Object, Object> s = cast(store);
            final ValueAndTimestamp<Object> held = s.get(k);
            s.put(k, ValueAndTimestamp.make(value == null ? null : text(value), time));
            return held == null ? "-" : text(held.value()) + "@" + held.timestamp();
        }
        if (store instanceof VersionedKeyValueStore) {
            final VersionedKeyValueStore<Object, Object> s = cast(store);
            final long until = s.put(k, value == null ? null : text(value), time);
            final org.apache.kafka.streams.state.VersionedRecord<Object> held = s.get(k, Math.max(0, time - 20));
            return until + (held == null ? "-" : text(held.value()) + "@" + held.timestamp());
        }
        if (store instanceof KeyValueStore) {
            final KeyValueStore<Object, Object> s = cast(store);
            final Object held = s.get(k);
            s.put(k, value == null ? null : text(value));
            return held == null ? "-" : text(held);
        }
        if (store instanceof WindowStore) {
            final WindowStore<Object, Object> s = cast(store);
            s.put(k, value == null ? null : text(value), time);
            final StringBuilder found = new StringBuilder();
            try (WindowStoreIterator<Object> each = s.fetch(k, Math.max(0, time - 50), time + 20)) {
                while (each.hasNext()) {
                    final KeyValue<Long, Object> row = each.next();
                    found.append(row.key).append(':').append(text(row.value)).append(' ');
                }
            }
            return found.toString();
        }
        final SessionStore<Object, Object> s = cast(store);
        s.put(new Windowed<>(k, new SessionWindow(time, time + 5)), value == null ? null : text(value));
        final StringBuilder found = new StringBuilder();
        try (KeyValueIterator<Windowed<Object>, Object> each = s.findSessions(k, Math.max(0, time - 40), time + 10)) {
            while (each.hasNext()) {
                final KeyValue<Windowed<Object>, Object> row = each.next();
                found.append(text(row.key)).append(':').append(text(row.value)).append(' ');
            }
        }
        return found.toString();
    }

    /** What ranges of a store hold. Stores with a cache are only used, since it has an order of its own. */
    static String read(final String name, final Object store, final Object key, final long time) {
        final String k = text(key);
        if (name.endsWith("-cached") || store instanceof VersionedKeyValueStore) return "";
        final StringBuilder found = new StringBuilder();
        if (store instanceof KeyValueStore) {
            final KeyValueStore<Object, Object> s = cast(store);
            rows(found, s.range(null, k));
            rows(found, s.reverseRange(k, null));
            rows(found, s.prefixScan("k", new org.apache.kafka.common.serialization.StringSerializer()));
            rows(found, s.reverseAll());
        } else if (store instanceof WindowStore) {
            final WindowStore<Object, Object> s = cast(store);
            rows(found, s.fetch(null, k, Math.max(0, time - 80), time + 40));
            rows(found, s.backwardFetch(k, null, Math.max(0, time - 80), time + 40));
            rows(found, s.backwardFetchAll(Math.max(0, time - 30), time));
            rows(found, s.all());
            found.append(text(s.fetch(k, time)));
        } else {
            final SessionStore<Object, Object> s = cast(store);
            rows(found, s.fetch(k));
            rows(found, s.findSessions(null, k, Math.max(0, time - 60), time + 30));
            found.append(text(s.fetchSession(k, time, time + 5)));
        }
        return found.toString();
    }

    private static <A, B> void rows(final StringBuilder found, final KeyValueIterator<A, B> each) {
        try (each) {
            while (each.hasNext()) {
                final KeyValue<A, B> row = each.next();
                final Object value = row.value instanceof ValueAndTimestamp ? ((ValueAndTimestamp<?>) row.value).value() : row.value;
                found.append(text(row.key)).append(':').append(text(value)).append(' ');
            }
        }
        found.append('|');
    }

    /** Records of punctuators have metadata without a topic here, and none in millpond; see docs/kafka-streams-names.md. */
    private static String origin(final ProcessingContext context) {
        return context.recordMetadata().filter(m -> m.topic() != null).map(m -> m.topic() + "-" + m.partition() + "/" + m.offset()).orElse("nowhere");
    }

    /** The times of a processor, of its first call on. */
    private static String times(final ProcessingContext context) {
        return context.currentStreamTimeMs() + "," + context.currentSystemTimeMs();
    }

    static class Any implements Processor<Object, Object, Object, Object> {
        private final String name;
        private final List<String> stores;
        private ProcessorContext<Object, Object> context;
        private int seen;

        Any(final String name, final List<String> stores) {
            this.name = name;
            this.stores = stores;
        }

        @Override
        public void init(final ProcessorContext<Object, Object> context) {
            this.context = context;
            final Duration every = Duration.ofMillis(50);
            if ("stream-clock".equals(name)) context.schedule(every, PunctuationType.STREAM_TIME, this::tick);
            if ("wall-clock".equals(name)) context.schedule(every, PunctuationType.WALL_CLOCK_TIME, this::tick);
        }

        private void tick(final long now) {
            context.forward(new Record<>("tick", "t" + seen, now));
            if (!stores.isEmpty()) use(context.getStateStore(stores.get(0)), "tick", "t" + seen, now);
            seen = 0;
        }

        @Override
        public void process(final Record<Object, Object> record) {
            seen++;
            final String k = record.key() == null ? null : text(record.key());
            final String v = record.value() == null ? null : text(record.value());
            final Record<Object, Object> plain = record.withKey((Object) k).withValue((Object) v);
            switch (kind(name)) {
                case "forward": case "stream-clock": case "wall-clock":
                    context.forward(plain);
                    break;
                case "rekey":
                    context.forward(plain.withKey((Object) ("p" + k)).withTimestamp(record.timestamp() / 2));
                    break;
                case "thrice":
                    context.forward(plain);
                    context.forward(plain.withTimestamp(Math.max(0, record.timestamp() - 60)));
                    context.forward(plain);
                    break;
                case "origin":
                    context.forward(plain.withValue((Object) Functions.cap(v + " " + origin(context))));
                    break;
                case "times":
                    context.forward(plain.withValue((Object) Functions.cap(v + " " + times(context))));
                    break;
                case "use": {
                    final StringBuilder held = new StringBuilder();
                    for (final String store : stores) held.append(use(context.getStateStore(store), k, v, record.timestamp()));
                    context.forward(plain.withValue((Object) Functions.cap(held.toString())));
                    break;
                }
                case "read": {
                    final StringBuilder held = new StringBuilder();
                    for (final String store : stores) {
                        use(context.getStateStore(store), k, v, record.timestamp());
                        held.append(read(store, context.getStateStore(store), k, record.timestamp()));
                    }
                    // The end, so that all rows matter.
                    final String all = held.toString();
                    context.forward(plain.withValue((Object) (all.hashCode() + " " + Functions.cap(all))));
                    break;
                }
                default: throw new IllegalArgumentException("there is no processor called " + name);
            }
        }
    }

    /** Puts each record into a store as it is. */
    static class Fill implements Processor<Object, Object, Void, Void> {
        private final String store;
        private ProcessorContext<Void, Void> context;

        Fill(final String store) { this.store = store; }

        @Override
        public void init(final ProcessorContext<Void, Void> context) { this.context = context; }

        @Override
        public void process(final Record<Object, Object> record) {
            if (record.key() == null) return;
            final StateStore found = context.getStateStore(store);
            if (found instanceof TimestampedKeyValueStore)
                Processors.<TimestampedKeyValueStore<Object, Object>>cast(found).put(record.key(), ValueAndTimestamp.make(record.value(), record.timestamp()));
            else Processors.<KeyValueStore<Object, Object>>cast(found).put(record.key(), record.value());
        }
    }

    /** Looks up the key of each record in a store that another processor fills. */
    static class Look implements Processor<Object, Object, Object, Object> {
        private final String store;
        private ProcessorContext<Object, Object> context;

        Look(final String store) { this.store = store; }

        @Override
        public void init(final ProcessorContext<Object, Object> context) { this.context = context; }

        @Override
        public void process(final Record<Object, Object> record) {
            final Object held = Processors.<KeyValueStore<Object, Object>>cast(context.getStateStore(store)).get(text(record.key()));
            final String shown = held instanceof ValueAndTimestamp
                ? text(((ValueAndTimestamp<?>) held).value()) + "@" + ((ValueAndTimestamp<?>) held).timestamp() : text(held);
            context.forward(record.withKey((Object) text(record.key())).withValue((Object) Functions.cap(text(record.value()) + "?" + shown)));
        }
    }

    static class Fixed implements FixedKeyProcessor<Object, Object, Object> {
        private final String name;
        private final List<String> stores;
        private FixedKeyProcessorContext<Object, Object> context;

        Fixed(final String name, final List<String> stores) {
            this.name = name;
            this.stores = stores;
        }

        @Override
        public void init(final FixedKeyProcessorContext<Object, Object> context) { this.context = context; }

        @Override
        public void process(final FixedKeyRecord<Object, Object> record) {
            final String v = record.value() == null ? null : text(record.value());
            final FixedKeyRecord<Object, Object> plain = record.withValue((Object) v);
            switch (kind(name)) {
                case "forward":
                    context.forward(plain);
                    break;
                case "header":
                    plain.headers().add(argument(name), String.valueOf(v).getBytes(StandardCharsets.UTF_8));
                    context.forward(plain);
                    break;
                case "coarse":
                    context.forward(plain.withTimestamp(record.timestamp() / 50 * 50));
                    break;
                case "thrice":
                    context.forward(plain);
                    context.forward(plain.withTimestamp(Math.max(0, record.timestamp() - 60)));
                    context.forward(plain);
                    break;
                case "origin":
                    context.forward(plain.withValue((Object) Functions.cap(v + " " + origin(context))));
                    break;
                case "use": {
                    final StringBuilder held = new StringBuilder();
                    for (final String store : stores) held.append(use(context.getStateStore(store), record.key(), v, record.timestamp()));
                    context.forward(plain.withValue((Object) Functions.cap(held.toString())));
                    break;
                }
                default: throw new IllegalArgumentException("there is no processor called " + name);
            }
        }
    }

    static class Transformer implements ValueTransformerWithKey<Object, Object, Object> {
        private final String name;
        private final List<String> stores;
        private org.apache.kafka.streams.processor.ProcessorContext context;

        Transformer(final String name, final List<String> stores) {
            this.name = name;
            this.stores = stores;
        }

        @Override
        public void init(final org.apache.kafka.streams.processor.ProcessorContext context) { this.context = context; }

        @Override
        public Object transform(final Object key, final Object value) {
            switch (kind(name)) {
                case "glue": return Functions.cap(text(key) + "~" + text(value));
                case "null-if": return text(value).startsWith(argument(name)) ? null : text(value);
                case "use": {
                    final StringBuilder held = new StringBuilder();
                    for (final String store : stores) held.append(use(context.getStateStore(store), key, value, context.timestamp()));
                    return Functions.cap(held.toString());
                }
                default: throw new IllegalArgumentException("there is no transformer called " + name);
            }
        }

        @Override
        public void close() { }
    }

    @SuppressWarnings("unchecked")
    static <T> T cast(final Object it) { return (T) it; }
}
