import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

/** Asks questions with the JDK's own client, which offers HTTP/2 with `Upgrade: h2c` by default. */
public class JavaClient {
    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        String[] padding = {"", " ".repeat(300_000), ""};
        for (int i = 0; i < padding.length; i++) {
            String body = "{\"model\": \"quick\", \"stream\": " + (i == 2) + ", " + padding[i]
                + "\"messages\": [{\"role\": \"user\", \"content\": \"What is 2 + 2?\"}]}";
            HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0] + "/v1/chat/completions"))
                .POST(HttpRequest.BodyPublishers.ofString(body)).build();
            HttpResponse<String> response = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(response.statusCode() + " " + response.version() + " " + response.body().contains("4"));
        }
    }
}
