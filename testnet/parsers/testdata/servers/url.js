// Node's own server with new URL, as many routers have it: node url.js PORT
const decode = s => { try { return decodeURIComponent(s); } catch { return s; } };

require("http").createServer((req, res) => {
  let url;
  try {
    url = new URL(req.url, "http://localhost");
  } catch {
    return res.writeHead(400).end();
  }
  const cookies = {};
  for (const pair of (req.headers.cookie || "").split(";")) {
    const [name, ...value] = pair.split("=");
    cookies[name.trim()] = value.join("=").trim();
  }
  const [scheme, token] = (req.headers.authorization || "").split(" ");
  res.end(JSON.stringify({
    path: [url.pathname, decode(url.pathname)],
    query: [url.searchParams.get("token")],
    cookie: [cookies.session, cookies.session && decode(cookies.session)],
    token: /^bearer$/i.test(scheme) ? [token] : [],
    header: [req.headers["x-api-key"]],
  }));
}).listen(process.argv[2], "127.0.0.1");
