package app

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/client"
	"github.com/edgelimit/edgelimit/node/rules"
)

// requestFlags name the client and the rule of a request.
func requestFlags(g group) []cli.Flag {
	return []cli.Flag{
		g.flag("rule", "`NAME` of the rule", new(string)),
		g.flag("identity", "`WHO` is counted under the rule, such as 192.0.2.1", new(string)),
		g.flag("domain", "`NAME` of the domain of the descriptors (default: that of the rules, if they have only one)",
			new(string)),
	}
}

// nodeFlags are the URL of a node's listener and how long to wait for it.
func nodeFlags(listener, url, variable string, timeout time.Duration) []cli.Flag {
	return []cli.Flag{
		plain.flag("url", "`URL` of the node's "+listener+", or unix:/path", &url, variable),
		plain.flag("timeout", "how long to wait for the answer", &timeout),
	}
}

// requestOf returns the request that flags and arguments describe, and whether they describe one.
func requestOf(c *cli.Context) (req node.Request, ok bool, err error) {
	req = node.Request{Domain: c.String("domain"), Rule: c.String("rule"), Identity: c.String("identity")}
	for _, arg := range c.Args().Slice() {
		var descriptor []rules.Entry
		for pair := range strings.SplitSeq(arg, ",") {
			key, value, ok := strings.Cut(pair, "=")
			if !ok {
				return req, false, misuse(c.Command, "descriptor %q: want KEY=VALUE, several separated by commas", arg)
			}
			descriptor = append(descriptor, rules.Entry{Key: key, Value: value})
		}
		req.Descriptors = append(req.Descriptors, descriptor)
	}
	return req, req.Rule != "" || len(req.Descriptors) > 0, nil
}

// newClient returns a client of the node at --url.
func newClient(c *cli.Context) (*client.Client, error) {
	base, h, err := target(c)
	if err != nil {
		return nil, err
	}
	return client.New(strings.TrimSuffix(base.String(), "/"), h), nil
}

// target returns the URL of the node at --url, and an HTTP client that reaches it, through its Unix socket if it has
// one.
func target(c *cli.Context) (*url.URL, *http.Client, error) {
	text, h := c.String("url"), &http.Client{Timeout: c.Duration("timeout")}
	if path, unix := strings.CutPrefix(text, "unix:"); unix && path != "" {
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		h.Transport = &http.Transport{DisableKeepAlives: true, DialContext: dial}
		return &url.URL{Scheme: "http", Host: "localhost"}, h, nil
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, nil, misuse(c.Command, "--url %s: want a URL such as %s, or unix:/path", c.String("url"),
			defaultOf(flagNamed(c.Command, "url")))
	}
	return u, h, nil
}
