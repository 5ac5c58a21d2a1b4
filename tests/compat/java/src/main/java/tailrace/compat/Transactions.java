package tailrace.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;

/** The one transactional producer that this process may have. */
final class Transactions {
    private final String bootstrap;
    private final Member member;
    private KafkaProducer<byte[], byte[]> producer;

    Transactions(String bootstrap, Member member) {
        this.bootstrap = bootstrap;
        this.member = member;
    }

    void addTo(Map<String, Verb> verbs) {
        verbs.put("open_transactions", this::open);
        verbs.put("begin", args -> begin());
        verbs.put("send", this::send);
        verbs.put("send_offsets", args -> sendOffsets());
        verbs.put("end", this::end);
    }

    private Object open(JsonNode args) {
        producer = Records.producer(bootstrap, Map.of("transactional.id", args.get("transactional_id").asText()));
        producer.initTransactions();
        return null;
    }

    private Object begin() {
        producer.beginTransaction();
        return null;
    }

    private Object send(JsonNode args) throws Exception {
        Records.send(producer, args);
        return null;
    }

    private Object sendOffsets() {
        producer.sendOffsetsToTransaction(member.reached(), member.group());
        return null;
    }

    private Object end(JsonNode args) {
        if (args.get("commit").asBoolean()) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
        return null;
    }
}
