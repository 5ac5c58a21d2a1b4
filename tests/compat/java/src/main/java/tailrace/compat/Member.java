package tailrace.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** The one member of a group that this process may be. */
final class Member {
    private static final int DEFAULT_SESSION_MS = 10_000;
    private static final int HEARTBEAT_MS = 500;

    private final String bootstrap;
    private KafkaConsumer<byte[], byte[]> consumer;

    Member(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    void addTo(Map<String, Verb> verbs) {
        verbs.put("join", this::join);
        verbs.put("join_by_consumer_protocol", args -> subscribe(args, Map.of("group.protocol", "consumer")));
        verbs.put("poll", args -> Records.poll(consumer, args.get("count").asInt(), args.get("seconds").asDouble()));
        verbs.put("owned", args -> consumer.assignment().stream().map(TopicPartition::partition).sorted().collect(Collectors.toList()));
        verbs.put("commit", args -> commit());
        verbs.put("leave", args -> leave());
        verbs.put("consume", this::consume);
    }

    ConsumerGroupMetadata group() {
        return consumer.groupMetadata();
    }

    Map<TopicPartition, OffsetAndMetadata> reached() {
        Map<TopicPartition, OffsetAndMetadata> reached = new HashMap<>();
        for (TopicPartition each : consumer.assignment()) {
            reached.put(each, new OffsetAndMetadata(consumer.position(each)));
        }
        return reached;
    }

    private Object join(JsonNode args) {
        int session = args.path("session_ms").asInt(DEFAULT_SESSION_MS);
        int heartbeat = Math.min(session / 4, HEARTBEAT_MS);
        return subscribe(args, Map.of("session.timeout.ms", session, "heartbeat.interval.ms", heartbeat));
    }

    private Object subscribe(JsonNode args, Map<String, Object> protocol) {
        Map<String, Object> settings = new HashMap<>(protocol);
        settings.put("group.id", args.get("group").asText());
        settings.put("auto.offset.reset", "earliest");
        settings.put("metadata.max.age.ms", 1_000);
        if (args.path("instance_id").isTextual()) {
            settings.put("group.instance.id", args.get("instance_id").asText());
        }
        // A poll may be asked for any number of records, and a commit covers all that was polled.
        settings.put("max.poll.records", 1);
        consumer = Records.consumer(bootstrap, settings);
        List<String> topics = List.of(args.get("topic").asText());
        if (args.path("hand_over").asBoolean()) {
            consumer.subscribe(topics, new HandOver());
        } else {
            consumer.subscribe(topics);
        }
        return null;
    }

    /** Commits what was polled before partitions are given away. */
    private final class HandOver implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
            commit();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {}
    }

    private Object commit() {
        consumer.commitSync();
        return null;
    }

    private Object leave() {
        consumer.close();
        return null;
    }

    private Object consume(JsonNode args) {
        join(args);
        Object found = Records.poll(consumer, args.get("count").asInt(), 20);
        commit();
        leave();
        return found;
    }
}
