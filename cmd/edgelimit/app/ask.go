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
func requestFlags(category string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "rule", Usage: "`NAME` of the rule", Category: category},
		&cli.StringFlag{Name: "identity", Usage: "`WHO` is counted under the rule, such as 192.0.2.1",
			Category: category},
		&cli.StringFlag{Name: "domain", Usage: "`NAME` of the domain of the descriptors (default: that of the rules, " +
			"if " +
			"they have only one)", Category: category},
	}
}

// nodeFlag is the URL of a node's listener.
func nodeFlag(listener, def, variable string) cli.Flag {
	return &cli.StringFlag{Name: "url", Usage: "`URL` of the node's " + listener + ", or unix:/path", Value: def,
		EnvVars: env(variable)}
}

func timeoutFlag(def time.Duration) cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Usage: "how long to wait for the answer", Value: def}
}

// requestOf returns the request that flags and arguments describe.
func requestOf(c *cli.Context) (node.Request, error) {
	req := node.Request{Domain: c.String("domain"), Rule: c.String("rule"), Identity: c.String("identity")}
	for _, arg := range c.Args().Slice() {
		var descriptor []rules.Entry
		for pair := range strings.SplitSeq(arg, ",") {
			key, value, ok := strings.Cut(pair, "=")
			if !ok {
				return req, misuse(c.Command, "descriptor %q: want KEY=VALUE, several separated by commas", arg)
			}
			descriptor = append(descriptor, rules.Entry{Key: key, Value: value})
		}
		req.Descriptors = append(req.Descriptors, descriptor)
	}
	return req, nil
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
		def := ""
		for _, f := range c.Command.Flags {
			if f.Names()[0] == "url" {
				def = defaultOf(f)
			}
		}
		return nil, nil, misuse(c.Command, "--url %s: want a URL such as %s, or unix:/path", c.String("url"), def)
	}
	return u, h, nil
}
