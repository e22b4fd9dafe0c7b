package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgelimit/edgelimit/node/admin"
	"github.com/edgelimit/edgelimit/node/httpapi"
	"github.com/edgelimit/edgelimit/node/listen"
	"github.com/edgelimit/edgelimit/node/proxy"
	"github.com/edgelimit/edgelimit/node/ratelimit/prom"
	"github.com/edgelimit/edgelimit/node/respapi"
)

// Server serves a listener: net/http's, gRPC's, or that of the Redis protocol.
type Server = listen.Server

// openAdmin opens the listener for operators.
func (n *Node) openAdmin() error {
	if n.cfg.Admin == "" {
		return nil
	}
	path, unix := strings.CutPrefix(n.cfg.Admin, "unix:")
	unix = unix && n.cfg.Listeners["admin"] == nil // of an inherited socket others chose the mode
	n.access = admin.NewAccess(n.cfg.AdminOperators, n.budgets, n.log)
	if file := n.cfg.AdminTokensFile; file != "" && !unix {
		if err := n.loadTokens(); err != nil {
			return fmt.Errorf("admin_tokens_file: %w", err)
		}
		n.secrets.add("admin_tokens_file", file, n.loadTokens)
	}
	err := n.serveHTTP("admin", admin.API(n, n.access, n.cfg.LogLevel, n.log))
	if errors.Is(err, syscall.EADDRINUSE) && n.cfg.Admin == DefaultAdmin {
		n.log.Warn("no admin listener: its default address is in use, by another node of this machine perhaps; choose "+
			"one with --admin, or none with --admin ''", "admin", n.cfg.Admin)
		return nil
	}
	if err == nil && unix {
		return os.Chmod(path, 0o600)
	}
	return err
}

// openDashboard opens the listener of the dashboard alone.
func (n *Node) openDashboard() error {
	return n.serveHTTP("dashboard", admin.Dashboard(viewed{n}, n.budgets, n.log))
}

// openRESP opens the listener of the Redis protocol.
func (n *Node) openRESP() error {
	if n.cfg.RESP == "" {
		return nil
	}
	opt := respapi.Options{IdleTimeout: n.cfg.IdleTimeout, RedisRate: n.cfg.RESPRedisRate, Budgets: n.budgets,
		Logger: n.log}
	if file := n.cfg.RESPPasswordFile; file != "" {
		var err error
		if opt.Password, err = ReadPassword(file); err != nil {
			return fmt.Errorf("resp_password_file: %w", err)
		}
	}
	l, err := n.listen("resp")
	if err != nil {
		return err
	}
	opt.MaxConnections, opt.Leaving = l.MaxConnections(), l.Leaving()
	n.resp = respapi.New(n.timedBy("resp"), opt)
	n.secrets.add("resp_password_file", n.cfg.RESPPasswordFile, n.loadRESPPassword)
	l.Server, l.Refusal = n.resp, respapi.Full
	l.Panics = func() uint64 { return n.resp.Stats().Panics }
	return nil
}

// openPrometheus opens the listener of the statistics of envoyproxy/ratelimit, by its names, beside the node's metrics.
func (n *Node) openPrometheus(metrics prometheus.Gatherer) error {
	cfg := n.cfg.Ratelimit.Prometheus
	if cfg.Address == "" {
		return nil
	}
	statistics, err := prom.New(cfg, n.stats.Each)
	if err != nil {
		n.log.Warn("ratelimit.prometheus has no mapping: statistics have the names of envoyproxy/ratelimit",
			"error", err)
	}
	theirs := prometheus.NewRegistry()
	if err := theirs.Register(statistics); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+cfg.Path, admin.Metrics(prometheus.Gatherers{metrics, theirs}))
	return n.serveHTTP("prometheus", mux)
}

// openProxy opens the listener of the reverse proxy.
func (n *Node) openProxy() error {
	if n.cfg.Proxy.Listen == "" {
		return nil
	}
	l, err := n.listen(proxyListener)
	if err != nil {
		return err
	}
	n.proxy, err = proxy.New(n.timedBy(proxyListener), n.cfg.Proxy,
		proxy.Options{Requests: n.cfg.Requests, OnFailure: n.cfg.OnFailure, Headers: n.cfg.Headers,
			Connections: listen.ShareOfFiles(n.sharesOfFiles(), n.cfg.MaxConnections+listen.MaxStreams),
			Budgets:     n.budgets, Logger: n.log})
	if err != nil {
		return fmt.Errorf("proxy.%w", err)
	}
	s := n.proxy.Server()
	s.Handler = n.traced(s.Handler)
	l.UseHTTP(s.Server, 0)
	l.Server, l.Panics = s, n.proxy.Panics
	return nil
}

func (n *Node) closeProxy() {
	if n.proxy != nil {
		n.proxy.Close()
	}
}

// runProxy runs the proxy, if there is one, until ctx ends.
func (n *Node) runProxy(ctx context.Context) {
	if n.proxy != nil {
		n.proxy.Run(ctx)
	}
}

// serveHTTP opens a listener, unless its address is empty, that serves h.
func (n *Node) serveHTTP(name string, h http.Handler) error {
	if n.cfg.addresses()[name] == "" {
		return nil
	}
	l, err := n.listen(name)
	if err != nil {
		return err
	}
	var panics atomic.Uint64
	h = httpapi.Recover(h, n.log, func() { panics.Add(1) })
	l.UseHTTP(httpapi.Server(h, n.log), n.cfg.IdleTimeout)
	l.Panics = panics.Load
	return nil
}

// listen opens a listener with its limits.
func (n *Node) listen(name string) (*listen.Listener, error) {
	setting := listen.Setting{Name: name, Flag: "--" + name, Addr: n.cfg.addresses()[name],
		Socket: n.cfg.Listeners[name]}
	if name == "prometheus" {
		setting.Flag = "ratelimit.prometheus.address"
	}
	if name == proxyListener {
		setting.Name, setting.Flag = "proxy.listen", "proxy.listen (edgelimit proxy: --listen)"
	}
	l, err := listen.Open(setting, n.listenLimits(name), n.log)
	if err != nil {
		return nil, err
	}
	l.Name = name
	n.listeners[name] = l
	return l, n.secure(l)
}

func (n *Node) listenLimits(name string) listen.Limits {
	if !forClients(name) {
		l := listen.ProbeLimits()
		l.Budgets = n.budgets
		return l
	}
	l := listen.ClientLimits(name, n.cfg.MaxConnections, n.cfg.MaxConnectionsPerSource, n.sharesOfFiles(), n.exempt,
		n.log)
	l.Budgets, l.Behind = n.budgets, n.behind
	return l
}

// behind returns the client whom a trusted proxy names; not valid: none does.
func (n *Node) behind(r *http.Request) netip.Addr {
	client, trusted := n.requests.Client(r)
	if !trusted {
		return netip.Addr{}
	}
	return client
}

// sharesOfFiles returns how many equal shares of the file descriptors there are: one for the connections of each
// listener for clients, and one for those of the reverse proxy to upstreams.
func (n *Node) sharesOfFiles() (shares int) {
	for name, addr := range n.cfg.addresses() {
		if addr != "" && forClients(name) {
			shares++
		}
		if addr != "" && name == proxyListener {
			shares++
		}
	}
	return shares
}

// forClients reports whether a listener is for clients, not for probes or operators.
func forClients(name string) bool {
	return !slices.Contains([]string{"health", "admin", "dashboard", "prometheus"}, name)
}

// exempt reports whether a source may have all connections of a listener: this machine, where sidecars are, and trusted
// proxies, as all clients behind a proxy come from its address.
func (n *Node) exempt(source netip.Addr) bool {
	return source.IsLoopback() || n.requests.Trusts(source)
}

// gossipError explains why gossip cannot be opened.
func (c *Config) gossipError(err error) error {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Addr == nil {
		return err
	}
	_, port, _ := net.SplitHostPort(op.Addr.String())
	for _, s := range []listen.Setting{ // the LAN is opened first
		{Name: "gossip.wan", Flag: "--gossip-wan", Addr: c.Gossip.WAN},
		{Name: "gossip.lan", Flag: "--gossip", Addr: c.Gossip.LAN},
	} {
		if _, p, _ := net.SplitHostPort(s.Addr); p == port {
			return s.Explain(err)
		}
	}
	return err
}
