// Express with cookie-parser: node express.js PORT
const express = require("express"), cookies = require("cookie-parser");

const leaves = v => v !== null && typeof v === "object" ? Object.values(v).flatMap(leaves) : [v === undefined ? v : String(v)];

function answer(req, res) {
  const bearer = /(\S+)\s+(\S+)/.exec(req.get("Authorization") || ""); // as passport-jwt does
  const { tenant } = req.params;
  res.json({
    path: [req.path].concat(tenant ? [`/tenants/${tenant}/login`] : []),
    query: leaves(req.query.token),
    cookie: [].concat(req.cookies.session).map(String),
    token: bearer && bearer[1].toLowerCase() === "bearer" ? [bearer[2]] : [],
    header: [req.get("X-Api-Key")],
  });
}

const app = express();
app.use(cookies());
app.all("/tenants/:tenant/login", answer);
app.use(answer);
app.listen(process.argv[2], "127.0.0.1");
