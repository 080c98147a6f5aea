import bloomgate.BloomgateFilter;
import bloomgate.BloomgateFilter.Settings;
import bloomgate.BloomgateFilter.VerifiedToken;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import jakarta.servlet.Filter;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Base64;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;

/**
 * A server that uses BloomgateFilter, as the tests run it. It VERIFIES NO TOKEN: see below.
 *
 * <pre>
 * BLOOMGATE_URL, BLOOMGATE_KEY   where bloomgate is, and a key of the scope `check`
 * REVOKED_FILE                   the revoked ids, one a line: stands for your database
 * PORT                           where to listen on 127.0.0.1
 * TRY_MS, TOTAL_MS               other time limits than 250 and 500
 * </pre>
 */
final class Example {
    private static final AtomicLong LOOKUPS = new AtomicLong();
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Pattern TOKEN = Pattern.compile("Bearer [\\w-]+\\.([\\w-]+)\\.[\\w-]+");

    /** Stands for your database. Throws where the file cannot be read. */
    private static boolean isRevoked(String jti) throws IOException {
        LOOKUPS.incrementAndGet();
        return Files.readAllLines(Path.of(System.getenv("REVOKED_FILE"))).contains(jti);
    }

    /**
     * DANGER: reads the claims of ANY token, forged ones too. Your verification of the signature, the
     * issuer, the audience and the times (Spring Security, Nimbus JOSE+JWT) stands in this place, and you
     * ask it for what it has accepted. This is here for the tests alone.
     */
    private static VerifiedToken takeClaimsWithoutVerifying(HttpServletRequest request) {
        String header = request.getHeader("Authorization");
        Matcher token = TOKEN.matcher(header == null ? "" : header);
        if (!token.matches()) {
            return null;
        }
        try {
            JsonNode claims = JSON.readTree(Base64.getUrlDecoder().decode(token.group(1)));
            return claims.isObject() ? new VerifiedToken(claims.path("jti").textValue()) : null;
        } catch (IOException | IllegalArgumentException e) {
            return null;
        }
    }

    private static HttpServlet answering(String type, java.util.function.Supplier<String> text) {
        return new HttpServlet() {
            @Override
            protected void doGet(HttpServletRequest request, HttpServletResponse response)
                    throws IOException {
                response.setContentType(type);
                response.getWriter().print(text.get());
            }
        };
    }

    private static void serve(Context context, String path, HttpServlet servlet) {
        Tomcat.addServlet(context, path, servlet).addMapping(path);
    }

    private static void guard(Context context, String path, Filter filter) {
        FilterDef definition = new FilterDef();
        definition.setFilterName("bloomgate");
        definition.setFilter(filter);
        definition.setAsyncSupported("true");
        context.addFilterDef(definition);
        FilterMap mapping = new FilterMap();
        mapping.setFilterName("bloomgate");
        mapping.addURLPattern(path);
        context.addFilterMap(mapping);
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> environment = System.getenv();
        Settings settings =
                new Settings(
                        environment.get("BLOOMGATE_URL"),
                        environment.get("BLOOMGATE_KEY"),
                        "revoked-jti",
                        Duration.ofMillis(Long.parseLong(environment.getOrDefault("TRY_MS", "250"))),
                        Duration.ofMillis(Long.parseLong(environment.getOrDefault("TOTAL_MS", "500"))),
                        Example::takeClaimsWithoutVerifying,
                        Example::isRevoked);
        String folder = Files.createTempDirectory("bloomgate-servlet").toString();
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(folder);
        tomcat.setHostname("127.0.0.1");
        tomcat.setPort(Integer.parseInt(environment.get("PORT")));
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        Context context = tomcat.addContext("", folder);
        serve(context, "/orders", answering("application/json", () -> "{\"orders\":[]}"));
        serve(context, "/lookups", answering("application/json", () -> String.valueOf(LOOKUPS.get())));
        guard(context, "/orders/*", new BloomgateFilter(settings));
        tomcat.start();
        tomcat.getServer().await();
    }
}
