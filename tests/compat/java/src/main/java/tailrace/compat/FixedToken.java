package tailrace.compat;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.auth.SaslExtensions;
import org.apache.kafka.common.security.auth.SaslExtensionsCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/** Logs in by OAUTHBEARER with the token that stands in sasl.jaas.config, as it is. */
public final class FixedToken implements AuthenticateCallbackHandler {
    private String text;

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        text = (String) entries.get(0).getOptions().get("token");
    }

    @Override
    public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
        for (Callback each : callbacks) {
            if (each instanceof OAuthBearerTokenCallback) {
                ((OAuthBearerTokenCallback) each).token(new Token(text));
            } else if (each instanceof SaslExtensionsCallback) {
                ((SaslExtensionsCallback) each).extensions(SaslExtensions.empty());
            } else {
                throw new UnsupportedCallbackException(each);
            }
        }
    }

    @Override
    public void close() {}

    private static final class Token implements OAuthBearerToken {
        private final String text;
        private final long began = System.currentTimeMillis();

        Token(String text) {
            this.text = text;
        }

        @Override
        public String value() {
            return text;
        }

        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return began + Duration.ofHours(1).toMillis();
        }

        @Override
        public String principalName() {
            return "token";
        }

        @Override
        public Long startTimeMs() {
            return began;
        }
    }
}
