// Tomcat, embedded: java -cp JARS Tomcat.java PORT
import jakarta.servlet.http.*;
import java.io.IOException;
import java.util.*;
import java.util.regex.*;
import org.apache.catalina.Context;

public class Tomcat {
    // as Spring Security has it
    static final Pattern BEARER = Pattern.compile("^Bearer (?<token>[a-zA-Z0-9-._~+/]+=*)$", Pattern.CASE_INSENSITIVE);

    public static void main(String[] args) throws Exception {
        var tomcat = new org.apache.catalina.startup.Tomcat();
        tomcat.setBaseDir(args[1]);
        tomcat.setPort(Integer.parseInt(args[0]));
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        Context context = tomcat.addContext("", null);
        org.apache.catalina.startup.Tomcat.addServlet(context, "reader", new HttpServlet() {
            @Override
            protected void service(HttpServletRequest r, HttpServletResponse w) throws IOException {
                var cookies = new ArrayList<String>();
                for (Cookie c : r.getCookies() == null ? new Cookie[0] : r.getCookies()) {
                    if (c.getName().equals("session")) cookies.add(c.getValue());
                }
                String auth = r.getHeader("Authorization");
                Matcher bearer = BEARER.matcher(auth == null ? "" : auth);
                w.setContentType("application/json;charset=UTF-8");
                w.getWriter().print("{" + field("path", r.getServletPath(), r.getPathInfo(),
                    Objects.requireNonNullElse(r.getServletPath(), "") + Objects.requireNonNullElse(r.getPathInfo(), ""))
                    + "," + field("query", r.getParameter("token"))
                    + "," + field("cookie", cookies.toArray(new String[0]))
                    + "," + field("token", bearer.matches() ? bearer.group("token") : null)
                    + "," + field("header", r.getHeader("X-Api-Key")) + "}");
            }
        });
        context.addServletMappingDecoded("/*", "reader");
        tomcat.start();
        tomcat.getServer().await();
    }

    static String field(String name, String... values) {
        var list = new StringJoiner(",", "\"" + name + "\":[", "]");
        for (String v : values) {
            if (v == null) continue;
            var b = new StringBuilder("\"");
            for (char c : v.toCharArray()) b.append(c < 0x20 || c == '"' || c == '\\' || c > 0x7e ? String.format("\\u%04x", (int) c) : c);
            list.add(b.append('"'));
        }
        return list.toString();
    }
}
