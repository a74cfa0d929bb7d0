import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.HexFormat;
import java.util.function.BiConsumer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.test.TestRecord;

/**
 * What Kafka Streams does with generated changes of tables, for the joins of tests/oracle/table_joins/cases.py.
 *
 * Values are a letter and a digit, such as "c7". A golden file has the description of the topology, and what each
 * change writes to "out" and, in hexadecimal, to the internal topics of the join.
 *
 * Run: java -cp <kafka-streams and test-utils> TableJoins.java run <directory>
 */
public class TableJoins {
    static final Serde<String> STR = Serdes.String();
    static final Serde<byte[]> RAW = Serdes.ByteArray();
    static final int RECORDS = 120;
    static final HexFormat HEX = HexFormat.of();

    public static void main(final String[] args) throws IOException {
        final Path directory = Path.of(args[1]);
        Files.createDirectories(directory);
        for (final Map.Entry<String, BiConsumer<StreamsBuilder, Boolean>> each : cases().entrySet()) {
            for (final boolean caching : new boolean[] {false, true}) {
                final String name = each.getKey() + (caching ? "-cached" : "");
                Files.writeString(directory.resolve(name + ".txt"), run(name, each.getValue(), caching));
            }
        }
    }

    static String run(final String name, final BiConsumer<StreamsBuilder, Boolean> write, final boolean caching)
            throws IOException {
        final StreamsBuilder builder = new StreamsBuilder();
        write.accept(builder, caching);
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
                final String topic = List.of("left", "left", "right", "third").get(dice.roll(4));
                final int k = dice.roll(6);
                final int v = dice.roll(5);
                final String key = k == 0 ? null : "k" + k;
                final String value = v == 0 ? null : "" + (char) ('a' + dice.roll(4)) + dice.roll(10);
                now += dice.roll(40);
                final long timestamp = Math.max(0, now - dice.roll(120));
                if (!description.contains("(topics: [" + topic + "])")) continue;
                driver.createInputTopic(topic, STR.serializer(), STR.serializer())
                    .pipeInput(new TestRecord<>(key, value, Instant.ofEpochMilli(timestamp)));
                text.append(topic).append(' ').append(key).append(' ').append(value).append(' ').append(timestamp).append('\n');
                for (final String produced : new TreeSet<>(driver.producedTopicNames())) {
                    if (!shown(produced)) continue;
                    final boolean plain = produced.equals("out");
                    for (final TestRecord<byte[], byte[]> r : driver.createOutputTopic(produced, RAW.deserializer(), RAW.deserializer()).readRecordsToList()) {
                        text.append("  ").append(plain ? "" : produced + " ").append(show(r.key(), plain)).append(' ')
                            .append(show(r.value(), plain)).append(' ').append(r.timestamp()).append('\n');
                    }
                }
            }
            for (final String store : new TreeSet<>(driver.getAllStateStores().keySet()))
                text.append("store ").append(store).append('\n');
        }
        return text.toString();
    }

    static boolean shown(final String topic) {
        return topic.equals("out") || topic.startsWith("app-joined") || topic.contains("FK-JOIN") || topic.startsWith("app-fk");
    }

    static String show(final byte[] data, final boolean plain) {
        return data == null ? "null" : plain ? new String(data, java.nio.charset.StandardCharsets.UTF_8) : data.length == 0 ? "empty" : HEX.formatHex(data);
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
    static String plus(final String a, final String b) { return a.length() > 40 ? b : a + "+" + b; }
    static String less(final String a, final String b) { return a.length() > 40 ? b : a + "-" + b; }

    static Materialized<String, String, KeyValueStore<Bytes, byte[]>> kv(final String name, final boolean caching) {
        final Materialized<String, String, KeyValueStore<Bytes, byte[]>> m =
            Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(name).withKeySerde(STR).withValueSerde(STR);
        return caching ? m.withCachingEnabled() : m.withCachingDisabled();
    }

    static KTable<String, String> t(final StreamsBuilder b, final String topic, final boolean caching) {
        return b.table(topic, Consumed.with(STR, STR), kv(topic + "-rows", caching));
    }

    static KTable<String, String> passing(final StreamsBuilder b, final String topic) {
        return b.table(topic, Consumed.with(STR, STR));
    }

    static void out(final KTable<String, String> t) { out(t.toStream()); }

    static void out(final KStream<String, String> s) { s.to("out", Produced.with(STR, STR)); }

    static KTable<String, String> sums(final KTable<String, String> t, final boolean caching) {
        return t.groupBy((k, v) -> KeyValue.pair(letter(v), v), Grouped.with(STR, STR))
            .reduce(TableJoins::plus, TableJoins::less, kv("sums", caching));
    }

    /** The foreign key of a value: none for 9, and that of a row that never exists for 0 and 6. */
    static String fk(final String v) { return digit(v) == 9 ? null : "k" + digit(v) % 6; }

    static String fkWithKey(final String k, final String v) { return "k" + (digit(k) + digit(v)) % 6; }

    static void foreignKeyCases(final Map<String, BiConsumer<StreamsBuilder, Boolean>> c) {
        c.put("fk_inner", (b, h) -> out(t(b, "left", h).join(t(b, "right", h), TableJoins::fk, TableJoins::glue)));
        c.put("fk_inner_named", (b, h) -> out(t(b, "left", h).join(t(b, "right", h), TableJoins::fk, TableJoins::glue, TableJoined.as("fk"))));
        c.put("fk_inner_stored", (b, h) -> out(t(b, "left", h).join(t(b, "right", h), TableJoins::fk, TableJoins::glue, kv("joined", h))));
        c.put("fk_inner_key", (b, h) -> out(t(b, "left", h).join(t(b, "right", h), TableJoins::fkWithKey, TableJoins::glue)));
        c.put("fk_inner_defaults", (b, h) -> {
            final KTable<String, String> left = b.table("left");
            final KTable<String, String> right = b.table("right");
            left.join(right, TableJoins::fk, TableJoins::glue, Materialized.as("joined")).toStream().to("out");
        });
        c.put("fk_inner_of_views", (b, h) -> out(t(b, "left", h).filter((k, v) -> small(v)).join(
            t(b, "right", h).mapValues(v -> v + "m"), TableJoins::fk, TableJoins::glue)));
        c.put("fk_inner_partitioned", (b, h) -> out(t(b, "left", h).join(t(b, "right", h), TableJoins::fk, TableJoins::glue,
            TableJoined.with((topic, k, v, n) -> Optional.of(Set.of((k.length() + (v == null ? 0 : 1)) % n)), (topic, k, v, n) -> Optional.empty()))));
        c.put("fk_inner_grouped", (b, h) -> out(sums(t(b, "left", h).join(t(b, "right", h), TableJoins::fk, TableJoins::glue), h)));
        c.put("fk_inner_null", (b, h) -> out(t(b, "left", h).join(t(b, "right", h), TableJoins::fk, (l, r) -> small(l) ? null : l + r)));
        c.put("fk_inner_origin", (b, h) -> out(t(b, "left", h).join(t(b, "right", h), TableJoins::fk, TableJoins::glue).toStream().processValues(Origin::new)));
        c.put("fk_left", (b, h) -> out(t(b, "left", h).leftJoin(t(b, "right", h), TableJoins::fk, TableJoins::glue)));
        c.put("fk_left_named_stored", (b, h) -> out(t(b, "left", h).leftJoin(t(b, "right", h), TableJoins::fk, TableJoins::glue, TableJoined.as("fk"), kv("joined", h))));
        c.put("fk_left_of_itself", (b, h) -> {
            final KTable<String, String> left = t(b, "left", h);
            out(left.leftJoin(left, TableJoins::fk, TableJoins::glue));
        });
        c.put("fk_left_empty", (b, h) -> out(t(b, "left", h).leftJoin(t(b, "right", h).mapValues(v -> small(v) ? "" : v), TableJoins::fk, TableJoins::glue)));
        c.put("fk_left_stored_grouped", (b, h) -> out(sums(t(b, "left", h).leftJoin(t(b, "right", h), TableJoins::fk, TableJoins::glue, kv("joined", h)), h)));
        c.put("fk_left_suppressed", (b, h) -> {
            final KTable<String, String> left = t(b, "left", h);
            out(left.leftJoin(held(t(b, "right", h)), TableJoins::fk, TableJoins::glue));
        });
        c.put("fk_left_three", (b, h) -> out(t(b, "left", h).leftJoin(t(b, "right", h), TableJoins::fk, TableJoins::glue)
            .join(t(b, "third", h), TableJoins::fk, TableJoins::glue)));
        c.put("fk_left_with_primary", (b, h) -> out(t(b, "left", h).leftJoin(t(b, "right", h), TableJoins::glue)
            .join(t(b, "third", h), TableJoins::fk, TableJoins::glue).outerJoin(t(b, "fourth", h), TableJoins::glue)));
    }

    static KTable<String, String> held(final KTable<String, String> t) {
        return t.suppress(Suppressed.untilTimeLimit(Duration.ofMillis(100), Suppressed.BufferConfig.unbounded()));
    }

    /** Says where the record at hand came from. */
    static class Origin extends ContextualFixedKeyProcessor<String, String, String> {
        @Override
        public void process(final FixedKeyRecord<String, String> record) {
            final String from = context().recordMetadata().map(m -> m.topic() + m.partition() + "/" + m.offset()).orElse("nowhere");
            context().forward(record.withValue(record.value() + " from " + from));
        }
    }

    static Map<String, BiConsumer<StreamsBuilder, Boolean>> cases() {
        final Map<String, BiConsumer<StreamsBuilder, Boolean>> c = new LinkedHashMap<>();
        c.put("inner", (b, h) -> out(t(b, "left", h).join(t(b, "right", h), TableJoins::glue)));
        c.put("inner_passing", (b, h) -> out(passing(b, "left").join(passing(b, "right"), TableJoins::glue)));
        c.put("inner_named", (b, h) -> out(t(b, "left", h).join(t(b, "right", h), TableJoins::glue, Named.as("both"))));
        c.put("inner_stored", (b, h) -> out(t(b, "left", h).join(t(b, "right", h), TableJoins::glue, kv("joined", h))));
        c.put("inner_named_stored", (b, h) -> out(t(b, "left", h).join(t(b, "right", h), TableJoins::glue, Named.as("both"), kv("joined", h))));
        c.put("inner_serdes_only", (b, h) -> out(t(b, "left", h).join(t(b, "right", h), TableJoins::glue, Materialized.with(STR, STR))));
        c.put("inner_grouped", (b, h) -> out(sums(t(b, "left", h).join(t(b, "right", h), TableJoins::glue), h)));
        c.put("inner_stored_grouped", (b, h) -> out(sums(t(b, "left", h).join(t(b, "right", h), TableJoins::glue, kv("joined", h)), h)));
        c.put("inner_filtered", (b, h) -> out(t(b, "left", h).join(t(b, "right", h), TableJoins::glue).filter((k, v) -> small(v))));
        c.put("inner_filtered_stored", (b, h) -> out(t(b, "left", h).join(t(b, "right", h), TableJoins::glue)
            .filter((k, v) -> small(v), kv("joined-kept", h))));
        c.put("inner_of_views", (b, h) -> out(t(b, "left", h).filter((k, v) -> small(v))
            .join(t(b, "right", h).mapValues(v -> v + "m"), TableJoins::glue)));
        c.put("inner_of_itself", (b, h) -> {
            final KTable<String, String> left = t(b, "left", h);
            out(left.join(left, TableJoins::glue));
        });
        c.put("inner_with_own_view", (b, h) -> {
            final KTable<String, String> left = t(b, "left", h);
            out(left.filter((k, v) -> small(v)).join(left.mapValues(v -> v + "m"), TableJoins::glue));
        });
        c.put("inner_three", (b, h) -> out(t(b, "left", h).join(t(b, "right", h), TableJoins::glue).join(t(b, "third", h), TableJoins::glue)));
        c.put("inner_three_right", (b, h) -> {
            final KTable<String, String> left = t(b, "left", h);
            out(left.join(t(b, "right", h).join(t(b, "third", h), TableJoins::glue), TableJoins::glue));
        });
        c.put("inner_suppressed", (b, h) -> out(held(t(b, "left", h)).join(t(b, "right", h), TableJoins::glue)));
        c.put("inner_then_suppressed", (b, h) -> out(held(t(b, "left", h).join(t(b, "right", h), TableJoins::glue))));
        c.put("inner_aggregates", (b, h) -> out(sums(passing(b, "left"), h).join(
            b.stream("right", Consumed.with(STR, STR)).groupByKey().reduce(TableJoins::plus, kv("totals", h)), TableJoins::glue)));
        c.put("inner_to_table", (b, h) -> out(t(b, "left", h).join(
            b.stream("right", Consumed.with(STR, STR)).selectKey((k, v) -> v == null ? null : "k" + digit(v)).toTable(kv("rekeyed", h)), TableJoins::glue)));
        c.put("inner_origin", (b, h) -> out(t(b, "left", h).join(t(b, "right", h), TableJoins::glue).toStream().processValues(Origin::new)));
        c.put("inner_null", (b, h) -> out(t(b, "left", h).join(t(b, "right", h), (l, r) -> small(l) ? null : l + r)));
        c.put("stream_with_joined", (b, h) -> out(b.stream("third", Consumed.with(STR, STR)).leftJoin(
            t(b, "left", h).outerJoin(t(b, "right", h), TableJoins::glue), TableJoins::glue, Joined.with(STR, STR, STR))));
        c.put("left", (b, h) -> out(t(b, "left", h).leftJoin(t(b, "right", h), TableJoins::glue)));
        c.put("left_named_stored", (b, h) -> out(t(b, "left", h).leftJoin(t(b, "right", h), TableJoins::glue, Named.as("both"), kv("joined", h))));
        c.put("left_passing", (b, h) -> out(passing(b, "left").leftJoin(passing(b, "right"), TableJoins::glue)));
        c.put("left_grouped", (b, h) -> out(sums(t(b, "left", h).leftJoin(t(b, "right", h), TableJoins::glue), h)));
        c.put("left_three", (b, h) -> out(t(b, "left", h).leftJoin(t(b, "right", h), TableJoins::glue).leftJoin(t(b, "third", h), TableJoins::glue)));
        c.put("left_three_right", (b, h) -> {
            final KTable<String, String> left = t(b, "left", h);
            out(left.leftJoin(t(b, "right", h).leftJoin(t(b, "third", h), TableJoins::glue), TableJoins::glue));
        });
        c.put("left_suppressed", (b, h) -> {
            final KTable<String, String> left = t(b, "left", h);
            out(left.leftJoin(held(t(b, "right", h)), TableJoins::glue));
        });
        c.put("outer", (b, h) -> out(t(b, "left", h).outerJoin(t(b, "right", h), TableJoins::glue)));
        c.put("outer_stored", (b, h) -> out(t(b, "left", h).outerJoin(t(b, "right", h), TableJoins::glue, kv("joined", h))));
        c.put("outer_passing_filtered", (b, h) -> out(passing(b, "left").outerJoin(passing(b, "right"), TableJoins::glue)
            .filterNot((k, v) -> v.startsWith("a"))));
        c.put("outer_grouped", (b, h) -> out(sums(t(b, "left", h).outerJoin(t(b, "right", h), TableJoins::glue), h)));
        c.put("outer_three", (b, h) -> out(t(b, "left", h).outerJoin(t(b, "right", h), TableJoins::glue).outerJoin(t(b, "third", h), TableJoins::glue, kv("joined", h))));
        foreignKeyCases(c);
        return c;
    }
}
