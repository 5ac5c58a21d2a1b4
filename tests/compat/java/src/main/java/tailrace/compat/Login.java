package tailrace.compat;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.HashMap;
import java.util.Map;

/** What every client of this process is given: the address, and what tests/compat/login.py says of logging in. */
final class Login {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Login() {}

    static Map<String, Object> settings(String bootstrap) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        String login = System.getenv("COMPAT_LOGIN");
        if (login != null) {
            try {
                settings.putAll(JSON.convertValue(JSON.readTree(login).get("properties"), new TypeReference<>() {}));
            } catch (JsonProcessingException error) {
                throw new IllegalArgumentException(error);
            }
        }
        return settings;
    }
}
