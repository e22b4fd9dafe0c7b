// Package recipes holds configurations of proxies that ask edgelimit about each request, and their tests. Copy them.
// The top of each states what clients get, and how soon, while edgelimit is killed, frozen, full or misconfigured:
//
//	nginx.conf, haproxy.cfg with haproxy.lua, Caddyfile    tested with the real programs, in each of these states
//	traefik.yaml with traefik-dynamic.yaml, apisix.yaml    tested with stand-ins that act as documented
//	envoy.yaml                                             checked against Envoy's own schema as well
//	haproxy-nodes.cfg                                      a rolling restart of nodes behind a balancer
//	edgelimit.yaml, edgelimit-envoy.yaml                   the edgelimit behind them
//	dropin/                                                envoyproxy/ratelimit in Envoy, Istio and Envoy Gateway
//	rules.yaml                                             the rules that the tests enforce
//
// [OutcomeOf] says what becomes of a request by edgelimit's answer, and so what a recipe is open for.
//
// The tests replace 127.0.0.1 with their own addresses, and change the line that a recipe marks FAIL-OPEN. Except for
// the states above they also lengthen the timeouts, so that a slow answer on a busy machine is not taken for none.
//
// The tests send all variations of testnet/evasion through nginx, HAProxy and Caddy, and variations of the connection
// and the body: none that reaches the application meets fewer limits than the plain request.
//
// TestBehind turns it round: nginx and Caddy serve behind edgelimit's own reverse proxy, and curl asks for what
// browsers ask for.
package recipes
