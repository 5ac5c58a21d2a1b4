package tailrace.compat.streams;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;

/**
 * Runs one topology until it is told to stop: {@code TOPOLOGY BOOTSTRAP APPLICATION STATE_FOLDER GUARANTEE}.
 *
 * <p>Topics are named after the application, keys and values are texts. On standard output is a line for each state that it
 * comes to.
 */
public final class Main {
    private static final int COMMIT_MS = 100;
    private static final int SESSION_MS = 6_000;
    private static final Duration CLOSING = Duration.ofSeconds(30);

    private Main() {}

    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[1]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[2]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Path.of(args[3]).toString());
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args[4]);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        // Every update is written, so that a record that was processed twice can be seen.
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, COMMIT_MS);
        // Changelogs are compacted as often as the server looks.
        settings.put(StreamsConfig.topicPrefix("min.cleanable.dirty.ratio"), "0.01");
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), SESSION_MS);
        settings.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), SESSION_MS / 10);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.consumerPrefix("metadata.max.age.ms"), 1_000);

        StreamsBuilder builder = new StreamsBuilder();
        Topologies.add(args[0], builder, args[2]);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.setUncaughtExceptionHandler(
                error -> {
                    error.printStackTrace();
                    return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.REPLACE_THREAD;
                });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(CLOSING)));
        streams.start();
    }
}
