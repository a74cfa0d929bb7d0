// The Kafka Streams side of the bench: the same four topologies as bench/apps.py, one stream thread, product defaults.
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
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

public final class KafkaStreamsBench {
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> LONG = Serdes.Long();
    /** Must equal WINDOW and GRACE of bench/apps.py. */
    private static final Duration WINDOW = Duration.ofMinutes(1);
    private static final Duration GRACE = Duration.ofSeconds(10);

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
            default -> throw new IllegalArgumentException("unknown workload " + options.get("workload"));
        }
        return builder.build();
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
