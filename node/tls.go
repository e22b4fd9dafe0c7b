package node

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/files"
	"github.com/edgelimit/edgelimit/node/listen"
	"github.com/edgelimit/edgelimit/node/rules"
)

// ListenerTLS is what Config.TLS has for a listener.
type ListenerTLS = listen.TLS

// validateTLS checks what listeners do before the first request of a connection.
func (c *Config) validateTLS(check func(ok bool, format string, args ...any)) {
	addresses := c.addresses()
	known := func(setting, name string) bool {
		addr, ok := addresses[name]
		check(ok, "%s.%.80s: there is no such listener, want one of %s%s", setting, name,
			strings.Join(slices.Sorted(maps.Keys(addresses)), ", "),
			guess(rules.Nearest(name, slices.Collect(maps.Keys(addresses)))))
		check(!ok || addr != "", "%s.%s: the listener has no address: set %s", setting, name, addressSetting(name))
		return ok
	}
	for _, name := range slices.Sorted(maps.Keys(c.TLS)) {
		t := c.TLS[name]
		err := t.Validate()
		check(!known("tls", name) || err == nil, "tls.%s: %w", name, err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.ProxyProtocol)) {
		_, err := trusting(c.ProxyProtocol[name])
		check(!known("proxy_protocol", name) || err == nil, "proxy_protocol.%s: %w", name, err)
		check(forClients(name), "proxy_protocol.%s: it is for listeners for clients", name)
	}
	admin := c.TLS["admin"]
	_, secure := c.TLS["admin"]
	tokens := secure && c.AdminTokensFile != ""
	check(c.Admin == "" || listen.IsLocal(c.Admin) || admin.RequiresClientCerts() || tokens, "admin: %s can be "+
		"reached from other machines, and who reaches it may lift bans: want loopback, as %s, or unix:/path, or "+
		"certificates of its clients (tls.admin with client_ca_file), or tokens over TLS (tls.admin and "+
		"admin_tokens_file); the dashboard alone, read only, may be anywhere: dashboard (--dashboard)", c.Admin,
		DefaultAdmin)
	check(c.Admin != "" || c.AdminTokensFile == "", "admin_tokens_file: tokens without a listener: set admin (--admin)")
	check(len(c.AdminOperators) == 0 || admin.RequiresClientCerts() || tokens && admin.AsksForClientCerts(),
		"admin_operators: who shows no certificate may do everything: require one (tls.admin with client_ca_file), or "+
			"set admin_tokens_file")
	check(!slices.Contains(c.AdminOperators, ""), "admin_operators: one is empty")
}

// addressSetting returns the setting of a listener's address, with its flag if it has one.
func addressSetting(name string) string {
	switch name {
	case proxyListener:
		return "proxy.listen (--listen)"
	case "prometheus":
		return "ratelimit.prometheus.address"
	}
	return fmt.Sprintf("%s (--%s)", name, name)
}

// trusting returns a function that reports whether a peer is in a list of addresses, prefixes, and unix for the peers
// of Unix sockets, which have no address.
func trusting(list []string) (func(peer netip.Addr) bool, error) {
	if len(list) == 0 {
		return nil, fmt.Errorf("it is empty: list the balancers' addresses")
	}
	var prefixes []netip.Prefix
	unix := false
	for _, text := range list {
		if text == actions.UnixPeers {
			unix = true
			continue
		}
		prefix, err := rules.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%.80q: want an address, a prefix such as 10.0.0.0/8, or %s", text,
				actions.UnixPeers)
		}
		prefixes = append(prefixes, prefix)
	}
	return func(peer netip.Addr) bool {
		return !peer.IsValid() && unix ||
			slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(peer) })
	}, nil
}

// secure has a listener do what the configuration says of the time before the first request of a connection.
func (n *Node) secure(l *listen.Listener) (err error) {
	if list, ok := n.cfg.ProxyProtocol[l.Name]; ok {
		if l.ProxyProtocol, err = trusting(list); err != nil {
			return err
		}
	}
	if t, ok := n.cfg.TLS[l.Name]; ok {
		return l.UseTLS(t)
	}
	return nil
}

// watchCertificates reads TLS files again when they change, and warns of certificates that expire, until ctx ends.
func (n *Node) watchCertificates(ctx context.Context) {
	if len(n.cfg.TLS) == 0 {
		return
	}
	notifier := files.NewNotifier("tls", n.cfg.RulesPoll, n.log)
	defer notifier.Close()
	var warned []Warning
	n.certificates.Run(ctx.Done(), notifier, n.cfg.RulesPoll, func() {
		same := func(a, b Warning) bool { return a.Text == b.Text }
		if now := n.certificateWarnings(); !slices.EqualFunc(now, warned, same) {
			warned = now
			n.logWarnings()
		}
	})
}

// warnBefore is how long before the end of a certificate the warnings begin.
const warnBefore = 14 * 24 * time.Hour

// certificateWarnings warns of certificates that have expired, or will soon.
func (n *Node) certificateWarnings() (found []Warning) {
	now := time.Unix(0, n.clock.Now())
	for _, name := range slices.Sorted(maps.Keys(n.listeners)) {
		c := n.listeners[name].Certificate()
		if c == nil || c.Expires.Sub(now) > warnBefore {
			continue
		}
		what := "expires"
		if !c.Expires.After(now) {
			what = "has expired, clients refuse it"
		}
		found = append(found, Warning{Text: fmt.Sprintf("tls.%s.cert_file: the certificate in %s %s (%s): renew it; "+
			"the node needs no restart", name, c.File, what, c.Expires.UTC().Format(time.RFC3339))})
	}
	return found
}
