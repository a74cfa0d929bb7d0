import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Consumer;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.test.TestRecord;

/**
 * What Kafka Streams does with versioned tables, joins with a grace period and suppressed tables, for the cases of
 * tests/oracle/versioned/cases.py.
 *
 * Values are a letter and a digit, such as "c7". A golden file has the description of the topology, what each record
 * writes to "out" and, in hexadecimal, to internal topics, and what is in the versioned stores at the end.
 *
 * Run: java -cp <kafka-streams and test-utils> VersionedTables.java run <directory>
 */
public class VersionedTables {
    static final Serde<String> STR = Serdes.String();
    static final Serde<byte[]> RAW = Serdes.ByteArray();
    static final int RECORDS = 90;
    static final HexFormat HEX = HexFormat.of();

    public static void main(final String[] args) throws IOException {
        final Path directory = Path.of(args[1]);
        Files.createDirectories(directory);
        for (final Map.Entry<String, Consumer<StreamsBuilder>> each : cases().entrySet())
            Files.writeString(directory.resolve(each.getKey() + ".txt"), run(each.getKey(), each.getValue()));
    }

    static String run(final String name, final Consumer<StreamsBuilder> write) throws IOException {
        final StreamsBuilder builder = new StreamsBuilder();
        write.accept(builder);
        final Properties config = new Properties();
        config.put("application.id", "app");
        config.put("bootstrap.servers", "none:1");
        config.put("default.key.serde", STR.getClass().getName());
        config.put("default.value.serde", STR.getClass().getName());
        config.put("state.dir", Files.createTempDirectory("oracle").toString());
        final Topology topology = builder.build();
        final String description = topology.describe().toString();
        final StringBuilder text = new StringBuilder(description);
        final Dice dice = new Dice(name.length() * 1000L + name.charAt(0));
        long now = 1000;
        try (TopologyTestDriver driver = new TopologyTestDriver(topology, config)) {
            for (int i = 0; i < RECORDS; i++) {
                final String topic = List.of("left", "in", "right", "left").get(dice.roll(4));
                final int k = dice.roll(5);
                final int v = dice.roll(5);
                final String key = k == 0 ? null : "k" + k;
                final String value = v == 0 ? null : "" + (char) ('a' + dice.roll(4)) + dice.roll(10);
                now += dice.roll(40);
                final long timestamp = Math.max(0, now - dice.roll(3) * dice.roll(90));
                final RecordHeaders headers = new RecordHeaders();
                if (dice.roll(3) == 0) headers.add("h", ("" + i).getBytes(StandardCharsets.UTF_8));
                if (!description.contains("(topics: [" + topic + "])")) continue;
                text.append(topic).append(' ').append(key).append(' ').append(value).append(' ').append(timestamp).append('\n');
                driver.createInputTopic(topic, STR.serializer(), STR.serializer())
                    .pipeInput(new TestRecord<>(key, value, headers, timestamp));
                for (final String produced : new TreeSet<>(driver.producedTopicNames())) {
                    final boolean plain = produced.equals("out");
                    // What a buffer logs has the wall clock as its timestamp.
                    final boolean timeless = produced.contains("uffer") || produced.contains("SUPPRESS") || produced.contains("held");
                    for (final TestRecord<byte[], byte[]> r : driver.createOutputTopic(produced, RAW.deserializer(), RAW.deserializer()).readRecordsToList()) {
                        text.append("  ").append(plain ? "" : produced + " ").append(show(r.key(), plain)).append(' ')
                            .append(show(r.value(), plain));
                        if (!timeless) text.append(' ').append(r.timestamp());
                        for (final Header h : r.headers()) text.append(' ').append(h.key()).append('=').append(show(h.value(), false));
                        text.append('\n');
                    }
                }
            }
            for (final Map.Entry<String, StateStore> each : new TreeMap<>(driver.getAllStateStores()).entrySet()) {
                text.append("store ").append(each.getKey()).append('\n');
                if (!(each.getValue() instanceof VersionedKeyValueStore)) continue;
                final VersionedKeyValueStore<String, Object> store = driver.getVersionedKeyValueStore(each.getKey());
                for (int k = 1; k < 5; k++) {
                    text.append("  k").append(k).append(' ').append(show(store.get("k" + k)));
                    for (long back = 240; back >= 0; back -= 40) text.append(' ').append(show(store.get("k" + k, now - back)));
                    text.append('\n');
                }
            }
        }
        return text.toString();
    }

    static String show(final VersionedRecord<Object> r) { return r == null ? "null" : r.value() + "@" + r.timestamp(); }

    static String show(final byte[] data, final boolean plain) {
        return data == null ? "null" : plain ? new String(data, StandardCharsets.UTF_8) : data.length == 0 ? "empty" : HEX.formatHex(data);
    }

    static class Dice {
        private long state;
        Dice(final long seed) { state = seed; }
        int roll(final int sides) {
            state = (state * 6364136223846793005L + 1442695040888963407L);
            return (int) ((state >>> 33) % sides);
        }
    }

    // What the user functions do; the same in cases.py.
    static String letter(final String v) { return v.substring(0, 1); }
    static int digit(final String v) { return Integer.parseInt(v.substring(1, 2)); }
    static boolean small(final String v) { return digit(v) < 5; }
    static String glue(final String l, final String r) { return l + "|" + r; }
    static String plus(final String a, final String b) { return a.length() > 30 ? b : a + "+" + b; }
    static String less(final String a, final String b) { return a.length() > 30 ? b : a + "-" + b; }

    static Materialized<String, String, KeyValueStore<Bytes, byte[]>> kv(final String name) {
        return Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(name).withKeySerde(STR).withValueSerde(STR).withCachingDisabled();
    }

    static Materialized<String, String, KeyValueStore<Bytes, byte[]>> versions(final String name, final int history, final int segment) {
        return Materialized.<String, String>as(Stores.persistentVersionedKeyValueStore(name, Duration.ofMillis(history), Duration.ofMillis(segment)))
            .withKeySerde(STR).withValueSerde(STR);
    }

    static Materialized<String, Long, KeyValueStore<Bytes, byte[]>> longVersions(final String name, final int history) {
        return Materialized.<String, Long>as(Stores.persistentVersionedKeyValueStore(name, Duration.ofMillis(history)))
            .withKeySerde(STR).withValueSerde(Serdes.Long());
    }

    static KStream<String, String> in(final StreamsBuilder b) { return b.stream("in", Consumed.with(STR, STR)); }

    static KTable<String, String> t(final StreamsBuilder b, final String topic) {
        return b.table(topic, Consumed.with(STR, STR), versions(topic + "-rows", 60, 20));
    }

    static KTable<String, String> plain(final StreamsBuilder b, final String topic) {
        return b.table(topic, Consumed.with(STR, STR), kv(topic + "-rows"));
    }

    static void out(final KTable<String, ?> t) { out(t.toStream()); }

    static void out(final KStream<String, ?> s) { s.mapValues(v -> v == null ? null : v.toString()).to("out", Produced.with(STR, STR)); }

    static Grouped<String, String> g() { return Grouped.with(STR, STR); }

    static KGroupedTable<String, String> regroup(final KTable<String, String> t) {
        return t.groupBy((k, v) -> KeyValue.pair("k" + (1 + digit(v) % 3), v), g());
    }

    static Joined<String, String, String> grace(final int ms) {
        return Joined.<String, String, String>with(STR, STR, STR).withGracePeriod(Duration.ofMillis(ms));
    }

    /** Says where the record at hand came from. */
    static class Origin<K, V> extends ContextualFixedKeyProcessor<K, V, String> {
        @Override
        public void process(final FixedKeyRecord<K, V> record) {
            final String from = context().recordMetadata().map(m -> m.topic() + m.partition() + "/" + m.offset()).orElse("nowhere");
            context().forward(record.withValue(record.value() + " from " + from));
        }
    }

    static void versionedCases(final Map<String, Consumer<StreamsBuilder>> c) {
        c.put("table", b -> out(t(b, "left")));
        c.put("table_default_segments", b -> out(b.table("left", Consumed.with(STR, STR), Materialized.<String, String>as(
            Stores.persistentVersionedKeyValueStore("left-rows", Duration.ofMillis(0))).withKeySerde(STR).withValueSerde(STR))));
        c.put("to_table", b -> out(in(b).toTable(versions("rows", 50, 10)).filter((k, v) -> small(v))));
        c.put("filter", b -> out(t(b, "left").filter((k, v) -> small(v)).mapValues(v -> v + "m")));
        c.put("filter_stored", b -> out(t(b, "left").filterNot((k, v) -> small(v), kv("kept"))));
        c.put("filter_versioned", b -> out(t(b, "left").filter((k, v) -> small(v), versions("kept", 25, 10))));
        c.put("map_versioned", b -> out(t(b, "left").mapValues(v -> v + "m", versions("mapped", 25, 5)).filter((k, v) -> small(v))));
        c.put("group_count", b -> out(regroup(t(b, "left")).count(longVersions("counts", 100))));
        c.put("group_reduce", b -> out(regroup(t(b, "left").filter((k, v) -> small(v))).reduce(VersionedTables::plus, VersionedTables::less, versions("sums", 40, 10))));
        c.put("group_aggregate", b -> out(regroup(plain(b, "left")).aggregate(() -> "z0", (k, v, a) -> v.startsWith("c") ? null : plus(a, v),
            (k, v, a) -> v.startsWith("b") ? null : less(a, v), versions("sums", 60, 20))));
        c.put("filter_serdes_group", b -> out(regroup(t(b, "left").filter((k, v) -> small(v), Materialized.with(STR, STR)))
            .reduce(VersionedTables::plus, VersionedTables::less, kv("sums"))));
        c.put("filter_stored_group", b -> out(regroup(t(b, "left").filter((k, v) -> small(v), kv("kept")))
            .reduce(VersionedTables::plus, VersionedTables::less, kv("sums"))));
        c.put("stream_count", b -> out(in(b).groupByKey(g()).count(longVersions("counts", 50))));
        c.put("stream_reduce", b -> out(in(b).groupByKey(g()).reduce((x, y) -> y.startsWith("b") ? null : plus(x, y), versions("sums", 60, 20))));
        c.put("stream_aggregate", b -> out(in(b).groupByKey(g()).aggregate(() -> "z0", (k, v, a) -> v.startsWith("a") ? null : plus(a, v), versions("sums", 30, 10))
            .filter((k, v) -> v.length() > 8)));
        c.put("join_tables", b -> out(t(b, "left").join(t(b, "right"), VersionedTables::glue)));
        c.put("left_join_tables", b -> out(t(b, "left").leftJoin(plain(b, "right"), VersionedTables::glue)));
        c.put("outer_join_tables", b -> out(plain(b, "left").outerJoin(t(b, "right").filter((k, v) -> small(v)), VersionedTables::glue)));
        c.put("join_tables_versioned", b -> out(regroup(t(b, "left").join(t(b, "right"), VersionedTables::glue, versions("joined", 40, 10)).mapValues(v -> v.substring(3)))
            .reduce(VersionedTables::plus, VersionedTables::less, kv("sums"))));
        c.put("join", b -> out(in(b).join(t(b, "left"), (k, v, r) -> k + v + r, Joined.with(STR, STR, STR))));
        c.put("left_join", b -> out(in(b).leftJoin(t(b, "left"), VersionedTables::glue, Joined.with(STR, STR, STR))));
        c.put("join_view", b -> out(in(b).join(t(b, "left").filter((k, v) -> small(v)).mapValues(v -> v + "m"), VersionedTables::glue, Joined.with(STR, STR, STR))));
        c.put("left_join_view_stored", b -> out(in(b).leftJoin(t(b, "left").filter((k, v) -> small(v), versions("kept", 30, 10)), VersionedTables::glue, Joined.with(STR, STR, STR))));
        c.put("join_joined", b -> out(in(b).join(t(b, "left").leftJoin(t(b, "right"), VersionedTables::glue), VersionedTables::glue, Joined.with(STR, STR, STR))));
        c.put("join_own_reduce", b -> {
            final KStream<String, String> s = in(b);
            out(s.leftJoin(s.groupByKey(g()).reduce(VersionedTables::plus, versions("sums", 80, 20)), (v, r) -> v + "/" + r, Joined.with(STR, STR, STR)));
        });
    }

    static void graceCases(final Map<String, Consumer<StreamsBuilder>> c) {
        c.put("grace_join", b -> out(in(b).join(t(b, "left"), (k, v, r) -> k + v + r, grace(40))));
        c.put("grace_left_join", b -> out(in(b).filter((k, v) -> k != null).leftJoin(t(b, "left"), VersionedTables::glue, grace(60))));
        c.put("grace_zero", b -> out(in(b).join(t(b, "left"), VersionedTables::glue, grace(0))));
        c.put("grace_view", b -> out(in(b).filter((k, v) -> k != null).leftJoin(t(b, "left").filter((k, v) -> small(v)).mapValues(v -> v + "m"), VersionedTables::glue, grace(25))));
        c.put("grace_rekeyed", b -> out(in(b).selectKey((k, v) -> v == null ? null : "k" + (1 + digit(v) % 3)).join(t(b, "left"), VersionedTables::glue, grace(50))));
        c.put("grace_named", b -> out(in(b).join(t(b, "left"), VersionedTables::glue, grace(40).withName("joined")).processValues(Origin::new)));
        c.put("grace_same_time", b -> out(in(b).processValues(Coarse::new).join(t(b, "left"), VersionedTables::glue, grace(50)).mapValues(v -> v + "!")));
        c.put("grace_then_count", b -> out(in(b).join(t(b, "left"), VersionedTables::glue, grace(30)).groupByKey(g()).count(longVersions("counts", 100))));
    }

    /** Times in steps of 50 ms, so that many are equal. */
    static class Coarse extends ContextualFixedKeyProcessor<String, String, String> {
        @Override
        public void process(final FixedKeyRecord<String, String> record) {
            context().forward(record.withTimestamp(record.timestamp() / 50 * 50));
        }
    }

    static Map<String, Consumer<StreamsBuilder>> cases() {
        final Map<String, Consumer<StreamsBuilder>> c = new LinkedHashMap<>();
        versionedCases(c);
        graceCases(c);
        return c;
    }
}
