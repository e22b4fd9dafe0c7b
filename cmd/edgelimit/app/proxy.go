package app

import (
	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
)

const ofProxy group = "Reverse proxy"

const proxyHelp = `
Clients connect to the proxy, and it forwards what its rules admit to the upstreams: HTTP/1.1, HTTP/2, gRPC, WebSockets
and server-sent events, as they stream. A denied request gets 429 and reaches no upstream. Each response says how much
of the limits is left (RateLimit, X-RateLimit-*).

Without a rule file the sample rules apply: 100 requests a minute for each address, and 5 in 10 s to /login. It is a
node like any other: it can join a cluster, whose nodes count together, and has all flags of 'edgelimit serve', but no
HTTP API unless --http or the configuration asks for it. Rules say where their values come from (from: header
X-Api-Key), or the configuration does (requests.descriptors); one that no request can meet is an error, unless --lax.
The section proxy of the configuration file has routes, timeouts, health checks, an access log and more: 'edgelimit
proxy --print-config'.

One server:  edgelimit proxy --listen :8080 --upstream http://127.0.0.1:3000
Own rules:   edgelimit proxy --rules rules.yaml \
               --listen :8080 --upstream http://127.0.0.1:3000
gRPC, two:   edgelimit proxy --listen :8080 \
               --upstream h2c://10.0.0.7:50051 --upstream h2c://10.0.0.8:50051

Exit status: 0 stopped by a signal, 2 could not start or failed.`

// proxyDefaults are those of the command proxy: a node without another API.
func proxyDefaults() node.Config {
	cfg := node.DefaultConfig()
	cfg.HTTP, cfg.Proxy.Listen, cfg.Proxy.Lax = "", node.DefaultHTTP, false
	return cfg
}

// proxySettings are the settings of a configuration that the command proxy has flags for.
func proxySettings(cfg *node.Config) []setting {
	return append([]setting{
		{ofProxy, "upstream", "`URL` of a server to forward to: http://host:port, https://host:port, or " +
			"h2c://host:port for HTTP/2 without TLS (repeatable)", &cfg.Proxy.Upstreams},
		{ofProxy, "lax", "start although no request can meet some of the rules", &cfg.Proxy.Lax},
		{ofProxy, "listen", "`ADDRESS` where clients connect, host:port or unix:/path", &cfg.Proxy.Listen},
	}, serveSettings(cfg)...)
}

func proxyCommand(extensions []Extension) *cli.Command {
	return &cli.Command{Name: "proxy", Usage: "run a node that is a reverse proxy: it limits what it forwards",
		Description: proxyHelp, Flags: serveFlags(proxyDefaults(), proxySettings, extensions),
		Action: func(c *cli.Context) error { return serve(c, proxyDefaults(), proxySettings, extensions) }}
}
