package tailrace.compat.flink;

import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Copies a topic to another, exactly once, and counts the records of each key on the way: {@code BOOTSTRAP SOURCE TARGET
 * CHECKPOINTS [CHECKPOINT]}. With a checkpoint it goes on from there.
 */
public final class Main {
    private static final int CHECKPOINT_MS = 300;
    private static final int PARALLELISM = 2;
    private static final int TRANSACTION_MS = 60_000;

    private Main() {}

    public static void main(String[] args) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", CHECKPOINT_MS + " ms");
        settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        settings.setString("execution.checkpointing.dir", "file://" + args[3]);
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "100");
        settings.setString("restart-strategy.fixed-delay.delay", "500 ms");
        settings.setString("rest.port", "0");
        if (args.length > 4) {
            settings.setString("execution.state-recovery.path", args[4]);
        }
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        flink.setParallelism(PARALLELISM);

        KafkaSource<String> source =
                KafkaSource.<String>builder()
                        .setBootstrapServers(args[0])
                        .setTopics(args[1])
                        .setGroupId("flink")
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setValueOnlyDeserializer(new SimpleStringSchema())
                        .setProperty("isolation.level", "read_committed")
                        .build();
        Properties producer = new Properties();
        producer.setProperty("transaction.timeout.ms", String.valueOf(TRANSACTION_MS));
        KafkaSink<String> sink =
                KafkaSink.<String>builder()
                        .setBootstrapServers(args[0])
                        .setKafkaProducerConfig(producer)
                        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                        .setTransactionalIdPrefix("flink-copy")
                        .setRecordSerializer(
                                KafkaRecordSerializationSchema.<String>builder()
                                        .setTopic(args[2])
                                        .setKeySerializationSchema(
                                                (String counted) -> counted.split(" ")[0].getBytes(StandardCharsets.UTF_8))
                                        .setValueSerializationSchema(new SimpleStringSchema())
                                        .build())
                        .build();
        flink.fromSource(source, WatermarkStrategy.noWatermarks(), "source")
                .keyBy(value -> value.split(" ")[0])
                .process(new CountOfKey())
                .sinkTo(sink);
        flink.execute("copy");
    }
}
