// Payments.java
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

public final class Payments {
    static Topology topology() {
        Serde<String> text = Serdes.String();
        Serde<Long> number = Serdes.Long();
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, String> countries = builder.table("customers", Consumed.with(text, text), Materialized.as("countries"));
        KStream<String, Long> payments = builder.stream("payments", Consumed.with(text, number));
        payments
            .join(countries, (amount, country) -> KeyValue.pair(country, amount))
            .map((customer, payment) -> payment)
            .groupByKey(Grouped.with(text, number))
            .reduce(Long::sum, Materialized.as("totals"))
            .toStream()
            .to("totals", Produced.with(text, number));
        return builder.build();
    }

    public static void main(String[] arguments) {
        if (arguments.length == 1 && arguments[0].equals("describe")) {
            System.out.print(topology().describe());
            return;
        }
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "payments");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, System.getenv("BROKERS"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, "java-state");
        settings.put("auto.offset.reset", "earliest");
        // Else the next Java application waits for session.timeout.ms, 45 s.
        settings.put("internal.leave.group.on.close", true);
        KafkaStreams streams = new KafkaStreams(topology(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
