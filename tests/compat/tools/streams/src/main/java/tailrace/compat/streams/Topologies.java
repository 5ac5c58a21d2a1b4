package tailrace.compat.streams;

import java.time.Duration;
import java.util.List;
import java.util.Locale;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;

/** What an application does with its topics. Topics are called after it: {@code APPLICATION.lines}. */
final class Topologies {
    private static final Duration WINDOW = Duration.ofMinutes(5);

    private Topologies() {}

    static void add(String name, StreamsBuilder builder, String application) {
        String topics = application + ".";
        switch (name) {
            case "words" -> countWords(builder, topics);
            case "joins" -> join(builder, topics);
            case "balances" -> addUp(builder, topics);
            default -> throw new IllegalArgumentException("there is no topology " + name);
        }
    }

    /** Counts words, by way of a repartition topic and the changelog of a store. */
    private static void countWords(StreamsBuilder builder, String topics) {
        builder.<String, String>stream(topics + "lines")
                .flatMapValues(line -> List.of(line.toLowerCase(Locale.ROOT).split("\\W+")))
                .groupBy((key, word) -> word, Grouped.as("words"))
                .count(Materialized.as("counts"))
                .mapValues(String::valueOf)
                .toStream()
                .to(topics + "counts");
    }

    /** Joins orders with customers, with prices by another key, and with payments in a window of time. */
    private static void join(StreamsBuilder builder, String topics) {
        KStream<String, String> orders = builder.stream(topics + "orders");
        KTable<String, String> customers = builder.table(topics + "customers", Materialized.as("customers"));
        KTable<String, String> regions = builder.table(topics + "regions", Materialized.as("regions"));
        GlobalKTable<String, String> prices = builder.globalTable(topics + "prices", Materialized.as("prices"));
        KStream<String, String> payments = builder.stream(topics + "payments");

        orders.join(customers, (order, customer) -> order + " for " + customer).to(topics + "orders-of-customers");
        orders.join(prices, (key, order) -> order, (order, price) -> order + " at " + price).to(topics + "priced-orders");
        orders.join(payments, (order, payment) -> order + " paid by " + payment, JoinWindows.ofTimeDifferenceWithNoGrace(WINDOW))
                .to(topics + "paid-orders");
        customers
                .join(regions, customer -> customer.substring(customer.indexOf('@') + 1), (customer, region) -> customer + " in " + region)
                .toStream()
                .to(topics + "customers-in-regions");
    }

    /** Takes an amount off one account and gives it to another: {@code FROM TO AMOUNT} to a balance and a count of changes. */
    private static void addUp(StreamsBuilder builder, String topics) {
        builder.<String, String>stream(topics + "transfers")
                .flatMap(
                        (key, transfer) -> {
                            String[] parts = transfer.split(" ");
                            return List.of(KeyValue.pair(parts[0], "-" + parts[2]), KeyValue.pair(parts[1], parts[2]));
                        })
                .groupByKey(Grouped.as("changes"))
                .aggregate(() -> "0 0", (account, change, balance) -> add(balance, change), Materialized.as("balances"))
                .toStream()
                .to(topics + "balances");
    }

    private static String add(String balance, String change) {
        String[] parts = balance.split(" ");
        return (Long.parseLong(parts[0]) + Long.parseLong(change)) + " " + (Long.parseLong(parts[1]) + 1);
    }
}
