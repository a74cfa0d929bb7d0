// The Kafka Streams side of the bench: the same topologies as bench/apps.py, one stream thread, product defaults.
// Arguments are name=value pairs; the process runs until it is told to stop (SIGTERM). The harness measures from outside.

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

public final class KafkaStreamsBench {
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> LONG = Serdes.Long();
    /** Must equal WINDOW, GRACE and DIFFERENCE of bench/apps.py. */
    private static final Duration WINDOW = Duration.ofMinutes(1);
    private static final Duration GRACE = Duration.ofSeconds(10);
    private static final Duration DIFFERENCE = Duration.ofSeconds(20);

    private KafkaStreamsBench() {}

    public static void main(final String[] args) throws InterruptedException {
        final Map<String, String> options = options(args);
        final KafkaStreams streams = new KafkaStreams(topology(options), properties(options));
        final CountDownLatch stopped = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            stopped.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(20));
            stopped.countDown();
        }));
        streams.start();
        stopped.await();
    }

    private static Topology topology(final Map<String, String> options) {
        final StreamsBuilder builder = new StreamsBuilder();
        final String output = options.get("output");
        final KStream<String, String> records = builder.stream(options.get("input"), Consumed.with(TEXT, TEXT));
        switch (options.get("workload")) {
            case "stateless" -> records
                .mapValues(value -> value.toUpperCase())
                .filter((key, value) -> value.charAt(0) != '0')
                .to(output, Produced.with(TEXT, TEXT));
            case "count" -> records
                .groupByKey(Grouped.with(TEXT, TEXT))
                .count()
                .toStream()
                .to(output, Produced.with(TEXT, LONG));
            case "window" -> records
                .groupByKey(Grouped.with(TEXT, TEXT))
                .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, GRACE))
                .count()
                .toStream()
                .to(output, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, WINDOW.toMillis()), LONG));
            case "join" -> records
                .join(builder.table(options.get("table"), Consumed.with(TEXT, TEXT)), (value, name) -> value + name)
                .to(output, Produced.with(TEXT, TEXT));
            case "stream_join" -> left(records)
                .join(
                    right(records),
                    (one, other) -> one.substring(0, 50) + other.substring(0, 50),
                    JoinWindows.ofTimeDifferenceAndGrace(DIFFERENCE, GRACE),
                    StreamJoined.with(TEXT, TEXT, TEXT))
                .to(output, Produced.with(TEXT, TEXT));
            case "session" -> records
                .groupByKey(Grouped.with(TEXT, TEXT))
                .windowedBy(SessionWindows.ofInactivityGapAndGrace(DIFFERENCE, GRACE))
                .count()
                .toStream()
                .to(output, Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), LONG));
            case "sliding" -> records
                .groupByKey(Grouped.with(TEXT, TEXT))
                .windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(DIFFERENCE, GRACE))
                .count()
                .toStream()
                .to(output, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, DIFFERENCE.toMillis()), LONG));
            case "table_join" -> records
                .toTable()
                .join(rows(builder, options), (value, row) -> value + row)
                .toStream()
                .to(output, Produced.with(TEXT, TEXT));
            case "fk_join" -> records
                .toTable()
                .join(
                    rows(builder, options),
                    (String value) -> String.format("k%07d", Integer.parseInt(value.substring(0, 4), 16)),
                    (value, row) -> value + row,
                    Materialized.with(TEXT, TEXT))
                .toStream()
                .to(output, Produced.with(TEXT, TEXT));
            case "cogroup" -> left(records)
                .groupByKey(Grouped.with(TEXT, TEXT))
                .<Long>cogroup((key, value, total) -> total + 1)
                .cogroup(right(records).groupByKey(Grouped.with(TEXT, TEXT)), (key, value, total) -> total + 1000)
                .aggregate(() -> 0L, Materialized.with(TEXT, LONG))
                .toStream()
                .to(output, Produced.with(TEXT, LONG));
            default -> throw new IllegalArgumentException("unknown workload " + options.get("workload"));
        }
        return builder.build();
    }

    private static KStream<String, String> left(final KStream<String, String> records) {
        return records.filter((key, value) -> value.charAt(0) < '8');
    }

    private static KStream<String, String> right(final KStream<String, String> records) {
        return records.filter((key, value) -> value.charAt(0) >= '8');
    }

    private static KTable<String, String> rows(final StreamsBuilder builder, final Map<String, String> options) {
        return builder.table(options.get("table"), Consumed.with(TEXT, TEXT));
    }

    private static Properties properties(final Map<String, String> options) {
        final Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, options.get("application"));
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
        properties.put(StreamsConfig.STATE_DIR_CONFIG, options.get("state"));
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, options.get("commit_ms"));
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG,
            options.get("guarantee").equals("exactly_once") ? StreamsConfig.EXACTLY_ONCE_V2 : StreamsConfig.AT_LEAST_ONCE);
        properties.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        // Serdes of the state stores where the topology names none.
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        return properties;
    }

    private static Map<String, String> options(final String[] args) {
        final Map<String, String> options = new HashMap<>();
        for (final String arg : args) {
            final int equals = arg.indexOf('=');
            options.put(arg.substring(0, equals), arg.substring(equals + 1));
        }
        return options;
    }
}
