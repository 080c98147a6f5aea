package bloomgate;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import org.apache.hc.client5.http.classic.methods.HttpPost;
import org.apache.hc.client5.http.config.ConnectionConfig;
import org.apache.hc.client5.http.config.RequestConfig;
import org.apache.hc.client5.http.impl.classic.CloseableHttpClient;
import org.apache.hc.client5.http.impl.classic.HttpClients;
import org.apache.hc.client5.http.impl.io.ManagedHttpClientConnectionFactory;
import org.apache.hc.client5.http.impl.io.PoolingHttpClientConnectionManagerBuilder;
import org.apache.hc.core5.http.ClassicHttpResponse;
import org.apache.hc.core5.http.ContentType;
import org.apache.hc.core5.http.Header;
import org.apache.hc.core5.http.HttpEntity;
import org.apache.hc.core5.http.config.Http1Config;
import org.apache.hc.core5.http.io.entity.ByteArrayEntity;
import org.apache.hc.core5.io.CloseMode;
import org.apache.hc.core5.util.Timeout;

/**
 * A servlet filter: whoever comes with a revoked token is turned away.
 *
 * <p>It stands BEHIND the verification of the token and does none itself: {@link Settings#token} gives the id
 * of a token that your verification has accepted, with its signature and its times. Copy this file; it needs
 * the Servlet API 5 or newer, Jackson, and Apache HttpClient 5. (The JDK's own client cannot be told to open
 * another connection.)
 *
 * <p>What it keeps:
 *
 * <ul>
 *   <li>Only a clean {@code definitely-not} passes without a look-up. Everything else (a maybe, another
 *       status, a time-out, a refused connection, an answer that is odd in any way) asks
 *       {@link Settings#revokedIds}: your own database, which is the authority. Where that fails too, nobody
 *       passes.
 *   <li>Two tries at most, the second on a connection of its own, and both within a deadline.
 *   <li>No token and no jti in a URL, a log line or an exception. (HttpClient writes the bodies into its own
 *       log only where {@code org.apache.hc.client5.http.wire} is set to debug: leave that off.)
 * </ul>
 */
public final class BloomgateFilter implements Filter {
    /** The longest answer that is read. bloomgate's own are below 1 KiB. */
    private static final int MAX_ANSWER_BYTES = 64 * 1024;

    private static final String INVALID = "Bearer error=\"invalid_token\"";

    /** A token that was VERIFIED, by its id; null where it has none. */
    public record VerifiedToken(String jti) {}

    /** Your database. */
    @FunctionalInterface
    public interface RevokedIds {
        /** Whether this id is revoked. Give it a time limit of its own; throw where it cannot be told. */
        boolean contains(String jti) throws Exception;
    }

    /**
     * @param url where bloomgate is, such as {@code http://127.0.0.1:8080}
     * @param key an API key of the scope {@code check}
     * @param filter the filter that holds the revoked ids
     * @param perTry how long one try may take, from the connection to the last byte
     * @param total how long both tries may take together
     * @param token the token of a request, VERIFIED before; null where there was none
     * @param revokedIds looks an id up in your database
     */
    public record Settings(
            String url,
            String key,
            String filter,
            Duration perTry,
            Duration total,
            Function<HttpServletRequest, VerifiedToken> token,
            RevokedIds revokedIds) {
        public Settings {
            for (Object part : new Object[] {url, key, filter, perTry, total, token, revokedIds}) {
                Objects.requireNonNull(part, "a setting of BloomgateFilter is missing");
            }
        }

        /** With the filter {@code revoked-jti}, 250 ms for a try and 500 ms in all. */
        public Settings(
                String url,
                String key,
                Function<HttpServletRequest, VerifiedToken> token,
                RevokedIds revokedIds) {
            this(url, key, "revoked-jti", Duration.ofMillis(250), Duration.ofMillis(500), token, revokedIds);
        }
    }

    private final Settings settings;
    private final URI target;
    // A kept connection may have died since it was used last; the second try takes none of those.
    private final List<CloseableHttpClient> clients;
    private final ScheduledThreadPoolExecutor timer;
    private final ObjectMapper json =
            new ObjectMapper()
                    .enable(JsonParser.Feature.STRICT_DUPLICATE_DETECTION)
                    .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);

    public BloomgateFilter(Settings settings) {
        this.settings = settings;
        String filter = URLEncoder.encode(settings.filter(), StandardCharsets.UTF_8);
        this.target = URI.create(settings.url()).resolve("/v1/filters/" + filter + "/check");
        this.clients = List.of(client(settings, true), client(settings, false));
        this.timer =
                new ScheduledThreadPoolExecutor(
                        1,
                        task -> {
                            Thread thread = new Thread(task, "bloomgate-deadlines");
                            thread.setDaemon(true);
                            return thread;
                        });
        timer.setRemoveOnCancelPolicy(true);
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        HttpServletResponse answer = (HttpServletResponse) response;
        VerifiedToken token = settings.token().apply((HttpServletRequest) request);
        if (token == null) {
            challenge(answer, "Bearer");
            return;
        }
        if (token.jti() == null || token.jti().isEmpty()) {
            // A token without an id cannot be revoked, so it is not let in.
            challenge(answer, INVALID);
            return;
        }
        if (!isDefinitelyNot(token.jti())) {
            boolean revoked;
            try {
                revoked = settings.revokedIds().contains(token.jti());
            } catch (Exception e) {
                if (e instanceof InterruptedException) {
                    Thread.currentThread().interrupt();
                }
                // It may name the id: log it in RevokedIds, where you know what it holds.
                answer.setStatus(HttpServletResponse.SC_SERVICE_UNAVAILABLE);
                return;
            }
            if (revoked) {
                challenge(answer, INVALID);
                return;
            }
        }
        chain.doFilter(request, response);
    }

    @Override
    public void destroy() {
        timer.shutdownNow();
        for (CloseableHttpClient client : clients) {
            client.close(CloseMode.IMMEDIATE);
        }
    }

    private static void challenge(HttpServletResponse answer, String value) {
        answer.setHeader("WWW-Authenticate", value);
        answer.setStatus(HttpServletResponse.SC_UNAUTHORIZED);
    }

    /** A client that follows no redirect and, as no {@code useSystemProperties} is said, uses no proxy. */
    private static CloseableHttpClient client(Settings settings, boolean keepsConnections) {
        Timeout limit = Timeout.of(settings.perTry());
        // Without these a head of any length is read.
        Http1Config bounds = Http1Config.custom().setMaxLineLength(8192).setMaxHeaderCount(100).build();
        var connections = ManagedHttpClientConnectionFactory.builder().http1Config(bounds).build();
        var builder =
                HttpClients.custom()
                        .setConnectionManager(
                                PoolingHttpClientConnectionManagerBuilder.create()
                                        .setConnectionFactory(connections)
                                        .setMaxConnTotal(64)
                                        .setMaxConnPerRoute(64)
                                        .setDefaultConnectionConfig(
                                                ConnectionConfig.custom()
                                                        .setConnectTimeout(limit)
                                                        .setSocketTimeout(limit)
                                                        .build())
                                        .build())
                        .setDefaultRequestConfig(
                                RequestConfig.custom()
                                        .setConnectionRequestTimeout(limit)
                                        .setResponseTimeout(limit)
                                        .build())
                        .disableRedirectHandling()
                        .disableAutomaticRetries()
                        .disableContentCompression()
                        .disableCookieManagement()
                        .disableAuthCaching();
        if (!keepsConnections) {
            builder.setConnectionReuseStrategy((request, response, context) -> false);
        }
        return builder.build();
    }

    /** True for a clean {@code definitely-not}, false for all else. Throws nothing. */
    private boolean isDefinitelyNot(String jti) {
        byte[] body;
        try {
            body = json.writeValueAsBytes(Map.of("item", jti));
        } catch (IOException e) {
            return false; // Half of a surrogate pair, which no JSON can hold.
        }
        long deadline = System.nanoTime() + settings.total().toNanos();
        for (CloseableHttpClient client : clients) {
            long left = Math.min(settings.perTry().toNanos(), deadline - System.nanoTime());
            if (left <= 0) {
                return false;
            }
            try {
                Answer answer = ask(client, body, left);
                if (answer.status() < 500) {
                    return isClean(answer);
                }
            } catch (IOException | RuntimeException e) {
                // No connection, none in time, or it broke: once more.
            }
        }
        return false;
    }

    private record Answer(int status, String contentType, boolean isEncoded, byte[] body) {}

    private Answer ask(CloseableHttpClient client, byte[] body, long limitNanos) throws IOException {
        HttpPost post = new HttpPost(target);
        post.setHeader("X-API-Key", settings.key());
        post.setHeader("Accept-Encoding", "identity");
        post.setEntity(new ByteArrayEntity(body, ContentType.APPLICATION_JSON));
        // For all of it: the client's own time-outs start anew with every byte. What is late loses its
        // connection, so that its answer can never be taken for another's.
        var alarm = timer.schedule(() -> post.cancel(), limitNanos, TimeUnit.NANOSECONDS);
        try {
            return client.execute(post, BloomgateFilter::read);
        } finally {
            alarm.cancel(false);
        }
    }

    private static Answer read(ClassicHttpResponse response) throws IOException {
        HttpEntity entity = response.getEntity();
        byte[] body = new byte[0];
        if (entity != null) {
            // A body that was cut off throws here, and is no shorter answer.
            body = entity.getContent().readNBytes(MAX_ANSWER_BYTES + 1);
            if (body.length > MAX_ANSWER_BYTES) {
                throw new IOException("too long an answer");
            }
        }
        Header contentType = response.getFirstHeader("Content-Type");
        return new Answer(
                response.getCode(),
                contentType == null ? "" : contentType.getValue(),
                response.containsHeader("Content-Encoding"),
                body);
    }

    /** Whether this is the answer to what was asked, and says {@code definitely-not} and nothing else. */
    private boolean isClean(Answer answer) {
        String mediaType = answer.contentType().split(";", 2)[0].strip();
        if (answer.status() != 200 || answer.isEncoded() || !mediaType.equalsIgnoreCase("application/json")) {
            return false;
        }
        JsonNode fields;
        try {
            fields = json.readTree(answer.body());
        } catch (IOException e) {
            return false;
        }
        // `reason` stands beside a maybe only.
        return "definitely-not".equals(fields.path("verdict").textValue())
                && settings.filter().equals(fields.path("filter").textValue())
                && !fields.has("reason");
    }
}
