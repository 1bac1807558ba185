import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * The JDK's own HTTP client, which offers HTTP/2 (`Upgrade: h2c`) in the first request of every connection.
 *
 * java JavaClient.java MODEL…; ODAR_URL says where. Prints one JSON object a feature, as programs.py does.
 */
public class JavaClient {
    private static final String ASK = "What is the capital of France?";
    private static final String ASK_TOOL = "What is the weather in Paris?";
    private static final String RESULT = "21 degrees and sunny";
    private static final String SCHEMA = "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}, "
        + "\"required\": [\"city\"], \"additionalProperties\": false}";
    private static final String TOOLS = ", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", "
        + "\"description\": \"The weather in a city.\", \"parameters\": " + SCHEMA + "}}]";
    private static String model;
    private static HttpClient client;

    interface Feature {
        void run() throws Exception;
    }

    public static void main(String[] models) {
        for (String each : models) {
            model = each;
            client = HttpClient.newHttpClient();
            feature("chat", JavaClient::chat);
            feature("stream", JavaClient::stream);
            feature("tools", JavaClient::tools);
            feature("structured", JavaClient::structured);
            feature("usage", JavaClient::usage);
        }
    }

    private static void chat() throws Exception {
        has(ask(user(ASK), "").body(), "Paris");
        has(ask(user(ASK), ", \"padding\": \"" + " ".repeat(300_000) + "\"").body(), "Paris");  // of several packets
    }

    private static void stream() throws Exception {
        List<String> lines = client.send(request(user(ASK), ", \"stream\": true"), HttpResponse.BodyHandlers.ofLines())
            .body().filter(line -> line.startsWith("data: ")).collect(Collectors.toList());
        String text = lines.stream().flatMap(line -> all("\"content\": ?\"([^\"]*)\"", line).stream())
            .collect(Collectors.joining());
        check(lines.size() > 2 && text.contains("Paris") && lines.get(lines.size() - 1).contains("[DONE]"), text);
    }

    private static void tools() throws Exception {
        String body = ask(user(ASK_TOOL), TOOLS).body();
        String id = all("\"id\": ?\"([^\"]*)\", ?\"type\": ?\"function\"", body).get(0);
        has(body, "get_weather");
        String call = "{\"id\": \"" + id + "\", \"type\": \"function\", \"function\": {\"name\": \"get_weather\", "
            + "\"arguments\": \"{\\\"city\\\": \\\"Paris\\\"}\"}}";
        String turns = user(ASK_TOOL) + ", {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [" + call + "]}, "
            + "{\"role\": \"tool\", \"tool_call_id\": \"" + id + "\", \"content\": \"Paris: " + RESULT + "\"}";
        has(ask(turns, TOOLS).body(), RESULT);
    }

    private static void structured() throws Exception {
        String form = ", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"city\", \"schema\": "
            + SCHEMA + "}}";
        check(ask(user("Name the capital of France as JSON."), form).body().matches("(?s).*\\\\\"city\\\\\": ?\\\\\"Paris\\\\\".*"),
            "no city");
    }

    private static void usage() throws Exception {
        check(Integer.parseInt(all("\"prompt_tokens\": ?(\\d+)", ask(user(ASK), "").body()).get(0)) > 0, "no tokens");
    }

    private static String user(String text) {
        return "{\"role\": \"user\", \"content\": \"" + text + "\"}";
    }

    private static HttpRequest request(String turns, String more) {
        String body = "{\"model\": \"" + model + "\", \"messages\": [" + turns + "]" + more + "}";
        return HttpRequest.newBuilder(URI.create(System.getenv("ODAR_URL") + "/v1/chat/completions"))
            .header("content-type", "application/json").POST(HttpRequest.BodyPublishers.ofString(body)).build();
    }

    private static HttpResponse<String> ask(String turns, String more) throws Exception {
        HttpResponse<String> response = client.send(request(turns, more), HttpResponse.BodyHandlers.ofString());
        check(response.statusCode() == 200 && response.version() == HttpClient.Version.HTTP_1_1, response.body());
        return response;
    }

    private static List<String> all(String pattern, String text) {
        Matcher matcher = Pattern.compile(pattern).matcher(text);
        return matcher.results().map(result -> result.group(1)).collect(Collectors.toList());
    }

    private static void has(String text, String wanted) {
        check(text.contains(wanted), text);
    }

    private static void check(boolean condition, String seen) {
        if (!condition) {
            throw new AssertionError("unexpected: " + seen.substring(0, Math.min(200, seen.length())));
        }
    }

    private static void feature(String name, Feature program) {
        String result = "ok";
        try {
            program.run();
        } catch (Throwable error) {
            result = error.toString().replaceAll("[^ -~]|[\"\\\\]", "'");
        }
        System.out.println("{\"feature\": \"" + name + "\", \"model\": \"" + model + "\", \"result\": \"" + result + "\"}");
    }
}
