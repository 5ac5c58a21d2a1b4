package tailrace.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producing, and reading without a group. */
final class Records {
    private static final long SECONDS = 20;
    private static final int MISSING = -1;

    private final String bootstrap;

    Records(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void addTo(Map<String, Verb> verbs) {
        verbs.put("produce", this::produce);
        verbs.put("produce_idempotent", args -> produce(args, Map.of()));
        verbs.put("read", this::read);
        verbs.put("position", this::position);
        verbs.put("offset_for_time", this::offsetForTime);
    }

    static KafkaProducer<byte[], byte[]> producer(String bootstrap, Map<String, Object> settings) {
        Map<String, Object> all = Login.settings(bootstrap);
        all.putAll(settings);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, Map<String, Object> settings) {
        Map<String, Object> all = Login.settings(bootstrap);
        all.putAll(settings);
        all.put("enable.auto.commit", false);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void send(KafkaProducer<byte[], byte[]> producer, JsonNode args) throws Exception {
        List<Future<?>> sent = new ArrayList<>();
        for (JsonNode record : args.get("records")) {
            sent.add(producer.send(Values.outgoing(args.get("topic").asText(), record)));
        }
        producer.flush();
        for (Future<?> each : sent) {
            each.get();
        }
    }

    static List<Object> poll(KafkaConsumer<byte[], byte[]> consumer, int count, double seconds) {
        List<Object> found = new ArrayList<>();
        long deadline = System.nanoTime() + (long) (seconds * 1e9);
        while (found.size() < count && System.nanoTime() < deadline) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                if (found.size() < count) {
                    found.add(Values.incoming(record));
                }
            }
        }
        return found;
    }

    private Object produce(JsonNode args) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("enable.idempotence", false);
        settings.put("compression.type", args.path("codec").asText("none"));
        if (args.path("max_bytes").isNumber()) {
            settings.put("max.request.size", args.get("max_bytes").asInt());
        }
        return produce(args, settings);
    }

    private Object produce(JsonNode args, Map<String, Object> settings) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, settings)) {
            send(producer, args);
        }
        return null;
    }

    private Object read(JsonNode args) {
        String isolation = args.path("committed_only").asBoolean() ? "read_committed" : "read_uncommitted";
        try (KafkaConsumer<byte[], byte[]> consumer =
                consumer(bootstrap, Map.of("isolation.level", isolation, "max.poll.records", 10_000))) {
            seek(consumer, Values.partition(args), args.get("start"));
            return poll(consumer, args.get("count").asInt(), SECONDS);
        }
    }

    private Object position(JsonNode args) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, Map.of())) {
            seek(consumer, Values.partition(args), args.get("start"));
            return consumer.position(Values.partition(args));
        }
    }

    private Object offsetForTime(JsonNode args) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, Map.of())) {
            OffsetAndTimestamp found = lookUp(consumer, Values.partition(args), args.get("timestamp_ms").asLong());
            return found == null ? MISSING : found.offset();
        }
    }

    private static OffsetAndTimestamp lookUp(KafkaConsumer<byte[], byte[]> consumer, TopicPartition where, long timestamp) {
        return consumer.offsetsForTimes(Map.of(where, timestamp)).get(where);
    }

    private static void seek(KafkaConsumer<byte[], byte[]> consumer, TopicPartition where, JsonNode start) {
        consumer.assign(List.of(where));
        switch (start.get(0).asText()) {
            case "beginning":
                consumer.seekToBeginning(List.of(where));
                break;
            case "end":
                consumer.seekToEnd(List.of(where));
                break;
            case "offset":
                consumer.seek(where, start.get(1).asLong());
                break;
            default:
                consumer.seek(where, lookUp(consumer, where, start.get(1).asLong()).offset());
        }
    }
}
