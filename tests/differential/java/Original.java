import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.errors.StreamsException;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.internals.InternalTopicConfig;
import org.apache.kafka.streams.processor.internals.InternalTopologyBuilder;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Runs cases with Kafka Streams: each line of standard input is a JSON array of cases, and each line of standard output
 * is the array of their answers.
 */
public final class Original {
    private static final ObjectMapper JSON = new ObjectMapper();
    /** Stores that belong to joins; their content is in their changelogs, and windows of no length cannot be listed. */
    private static final Pattern JOINS = Pattern.compile("JOINTHIS|JOINOTHER|OUTERTHIS|OUTEROTHER|OUTERSHARED|-this-join|-other-join|-shared-join|-outer|(?i:subscription)");
    private static final File STATE = new File(System.getProperty("state.dir"));

    private Original() { }

    public static void main(final String[] args) throws Exception {
        final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        final BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            final ArrayNode answers = JSON.createArrayNode();
            for (final JsonNode each : JSON.readTree(line)) answers.add(answer(each));
            out.println(JSON.writeValueAsString(answers));
            out.flush();
        }
    }

    private static ObjectNode answer(final JsonNode given) throws Exception {
        final ObjectNode answer = JSON.createObjectNode();
        final Path directory = Files.createTempDirectory(STATE.toPath(), "case");
        final Properties config = new Properties();
        config.put("application.id", "app");
        config.put("bootstrap.servers", "none:1");
        config.put("state.dir", directory.toString());
        config.put("default.key.serde", "org.apache.kafka.common.serialization.Serdes$StringSerde");
        config.put("default.value.serde", "org.apache.kafka.common.serialization.Serdes$StringSerde");
        if (!given.path("rocksdb").asBoolean()) config.put("dsl.store.suppliers.class", QuickStores.class.getName());
        if (given.has("config"))
            for (final Map.Entry<String, JsonNode> each : given.get("config").properties()) config.put(each.getKey(), each.getValue().asText());
        int at = -1;
        try {
            final Topologies topologies = new Topologies();
            final Topology topology = topologies.build(given.get("steps"), config);
            // The name of a lambda is another one in each run.
            answer.put("describe", topology.describe().toString().replaceAll("(extractor class: )Topologies[^\\n]*", "$1Topologies)"));
            try (TopologyTestDriver driver = new TopologyTestDriver(topology, config, Instant.ofEpochMilli(given.path("now").asLong(0)))) {
                answer.set("internal", internal(topology));
                final ArrayNode outputs = answer.putArray("outputs");
                final Map<String, TestInputTopic<String, String>> inputs = new TreeMap<>();
                for (final JsonNode each : given.get("input")) {
                    at++;
                    if (each.isObject()) driver.advanceWallClockTime(Duration.ofMillis(each.get("advance").asLong()));
                    else pipe(driver, inputs, each);
                    outputs.add(outputs(driver));
                }
                at++;
                answer.set("stores", stores(driver, given));
                answer.set("effects", JSON.valueToTree(topologies.effects));
                answer.put("dropped", dropped(driver));
            }
        } catch (final Exception error) {
            final ObjectNode failed = answer.putObject("error");
            failed.put("at", at);
            Throwable cause = error;
            while (cause.getCause() != null) cause = cause.getCause();
            failed.put("text", error + (cause == error ? "" : "; " + cause));
        }
        delete(directory.toFile());
        return answer;
    }

    private static void pipe(final TopologyTestDriver driver, final Map<String, TestInputTopic<String, String>> inputs, final JsonNode record) {
        final TestInputTopic<String, String> topic = inputs.computeIfAbsent(
            record.get(0).asText(), name -> driver.createInputTopic(name, new StringSerializer(), new StringSerializer()));
        final RecordHeaders headers = new RecordHeaders();
        if (record.size() > 4)
            for (final JsonNode header : record.get(4))
                headers.add(header.get(0).asText(), header.get(1).isNull() ? null : header.get(1).asText().getBytes(StandardCharsets.UTF_8));
        topic.pipeInput(new TestRecord<>(text(record.get(1)), text(record.get(2)), headers, Instant.ofEpochMilli(record.get(3).asLong())));
    }

    private static String text(final JsonNode it) { return it.isNull() ? null : it.asText(); }

    /** Bytes as text: each byte is the character of its number. */
    private static String raw(final byte[] bytes) { return bytes == null ? null : new String(bytes, StandardCharsets.ISO_8859_1); }

    private static ObjectNode outputs(final TopologyTestDriver driver) {
        final ObjectNode found = JSON.createObjectNode();
        for (final String topic : new TreeSet<>(driver.producedTopicNames())) {
            final List<TestRecord<byte[], byte[]>> records =
                driver.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer()).readRecordsToList();
            if (records.isEmpty()) continue;
            final ArrayNode rows = found.putArray(topic);
            for (final TestRecord<byte[], byte[]> record : records) {
                final ArrayNode row = rows.addArray();
                row.add(raw(record.key())).add(raw(record.value())).add(record.timestamp());
                final ArrayNode headers = JSON.createArrayNode();
                for (final Header header : record.headers()) headers.addArray().add(header.key()).add(raw(header.value()));
                if (!headers.isEmpty()) row.add(headers);
            }
        }
        return found;
    }

    private static ObjectNode internal(final Topology topology) throws Exception {
        final Field field = Topology.class.getDeclaredField("internalTopologyBuilder");
        field.setAccessible(true);
        final InternalTopologyBuilder builder = (InternalTopologyBuilder) field.get(topology);
        final Map<String, Map<String, String>> found = new TreeMap<>();
        for (final InternalTopologyBuilder.TopicsInfo info : builder.subtopologyToTopicsInfo().values())
            for (final Map<String, InternalTopicConfig> topics : List.of(info.repartitionSourceTopics, info.stateChangelogTopics))
                for (final InternalTopicConfig topic : topics.values())
                    // A source topic that serves as a changelog is no internal topic.
                    if (topics == info.repartitionSourceTopics || !info.sourceTopics.contains(topic.name()))
                    found.put(topic.name(), new TreeMap<>(topic.properties(Map.of(), 86_400_000L)));
        return JSON.valueToTree(found);
    }

    private static ObjectNode stores(final TopologyTestDriver driver, final JsonNode given) {
        final ObjectNode found = JSON.createObjectNode();
        for (final Map.Entry<String, StateStore> each : new TreeMap<>(driver.getAllStateStores()).entrySet()) {
            final List<String> rows = new ArrayList<>();
            final StateStore store = each.getValue();
            if (JOINS.matcher(each.getKey()).find()) continue;
            if (store instanceof ReadOnlyKeyValueStore) {
                rows(rows, Processors.<ReadOnlyKeyValueStore<Object, Object>>cast(store).all());
            } else if (store instanceof WindowStore) {
                rows(rows, Processors.<WindowStore<Object, Object>>cast(store).all());
            } else if (!listed(rows, store, keys(given))) continue;
            found.set(each.getKey(), JSON.valueToTree(new TreeSet<>(rows)));
        }
        return found;
    }

    /** Add the rows of a store that cannot list its keys; whether its keys are texts. */
    private static boolean listed(final List<String> rows, final StateStore store, final TreeSet<String> keys) {
        try {
            for (final String key : keys) {
                if (store instanceof SessionStore) {
                    rows(rows, Processors.<SessionStore<Object, Object>>cast(store).fetch(key));
                } else if (store instanceof VersionedKeyValueStore) {
                    final VersionedRecord<Object> held = Processors.<VersionedKeyValueStore<Object, Object>>cast(store).get(key);
                    if (held != null) rows.add(key + " = " + Functions.text(held.value()) + " @" + held.timestamp());
                } else return false;
            }
            return true;
        } catch (final ClassCastException | StreamsException windowed) {
            return false;
        }
    }

    /** The keys that the stores of sessions and of versions are asked for, since these cannot list theirs. */
    private static TreeSet<String> keys(final JsonNode given) {
        final TreeSet<String> found = new TreeSet<>(List.of("a", "b", "c", "k1", "k2", "k3", "k4", "k5", "null", "tick"));
        for (final JsonNode each : given.get("input")) if (each.isArray() && !each.get(1).isNull()) found.add(each.get(1).asText());
        return found;
    }

    private static <K, V> void rows(final List<String> rows, final KeyValueIterator<K, V> each) {
        try (each) {
            while (each.hasNext()) {
                final KeyValue<K, V> row = each.next();
                final Object value = row.value instanceof ValueAndTimestamp
                    ? Functions.text(((ValueAndTimestamp<?>) row.value).value()) + " @" + ((ValueAndTimestamp<?>) row.value).timestamp() : Functions.text(row.value);
                rows.add(Functions.text(row.key) + " = " + value);
            }
        }
    }

    private static long dropped(final TopologyTestDriver driver) {
        return Math.round(driver.metrics().entrySet().stream().filter(e -> e.getKey().name().equals("dropped-records-total"))
            .mapToDouble(e -> ((Number) e.getValue().metricValue()).doubleValue()).sum());
    }

    private static void delete(final File file) {
        final File[] inside = file.listFiles();
        if (inside != null) for (final File each : inside) delete(each);
        file.delete();
    }
}
