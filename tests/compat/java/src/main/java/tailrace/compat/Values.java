package tailrace.compat;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** Records between the client's classes and the arrays of tests/compat/contract.py. */
final class Values {
    private Values() {}

    /** An Outgoing is key, value, headers, partition, timestamp; what is missing at the end is null. */
    static ProducerRecord<byte[], byte[]> outgoing(String topic, JsonNode record) throws IOException {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.path(2)) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        Integer partition = record.path(3).isNumber() ? record.get(3).asInt() : null;
        Long timestamp = record.path(4).isNumber() ? record.get(4).asLong() : null;
        return new ProducerRecord<>(topic, partition, timestamp, bytes(record.path(0)), bytes(record.path(1)), headers);
    }

    static List<Object> incoming(ConsumerRecord<byte[], byte[]> record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(Arrays.asList(header.key(), header.value()));
        }
        return Arrays.asList(record.partition(), record.offset(), record.timestamp(), record.key(), record.value(), headers);
    }

    static TopicPartition partition(JsonNode args) {
        return new TopicPartition(args.get("topic").asText(), args.get("partition").asInt());
    }

    private static byte[] bytes(JsonNode value) throws IOException {
        return value.isTextual() ? value.binaryValue() : null;
    }
}
