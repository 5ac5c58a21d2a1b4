package tailrace.compat;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.common.protocol.Errors;

/** Answers calls on standard input by the Java client: {@code serve BOOTSTRAP}; or says its {@code version}. */
public final class Main {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Main() {}

    public static void main(String[] args) throws Exception {
        if (args[0].equals("version")) {
            System.out.println(version());
            return;
        }
        Map<String, Verb> verbs = new HashMap<>();
        Member member = new Member(args[1]);
        new Records(args[1]).addTo(verbs);
        member.addTo(verbs);
        new Administration(args[1]).addTo(verbs);
        new Inquiries(args[1]).addTo(verbs);
        new Transactions(args[1], member).addTo(verbs);

        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            answers.println(JSON.writeValueAsString(answer(verbs, JSON.readTree(line))));
            answers.flush();
        }
        System.exit(0);
    }

    private static String version() throws IOException {
        Properties facts = new Properties();
        try (InputStream file = Main.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            facts.load(file);
        }
        return facts.getProperty("version");
    }

    private static ObjectNode answer(Map<String, Verb> verbs, JsonNode call) {
        ObjectNode answer = JSON.createObjectNode();
        Verb verb = verbs.get(call.get("verb").asText());
        if (verb == null) {
            return answer.put("unsupported", "");
        }
        try {
            answer.set("result", JSON.valueToTree(verb.play(call.get("args"))));
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            answer.put("refused", code(cause)).put("message", String.valueOf(cause));
        }
        return answer;
    }

    private static int code(Throwable error) {
        // The client throws this one for several errors of the server: the group has moved on.
        return error instanceof CommitFailedException ? Errors.ILLEGAL_GENERATION.code() : Errors.forException(error).code();
    }
}
