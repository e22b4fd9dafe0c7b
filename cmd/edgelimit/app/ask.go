package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/certs"
	"github.com/edgelimit/edgelimit/node/client"
	"github.com/edgelimit/edgelimit/node/rules"
)

const ofRequest group = "The request"

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
		overTLS.flag("ca-file", "PEM `FILE` of the authorities to trust (default: the system's)", new(string)),
		overTLS.flag("cert-file", "PEM `FILE` of the certificate to show (default: none)", new(string)),
		overTLS.flag("key-file", "PEM `FILE` of its key", new(string)),
		overTLS.flag("server-name", "`NAME` in the node's certificate, if it is not that of the URL", new(string)),
	}
}

const overTLS group = "With an https URL"

// tlsOf returns the TLS settings of the flags; nil without any.
func tlsOf(c *cli.Context) (*tls.Config, error) {
	files := certs.Client{CAFile: c.String("ca-file"), CertFile: c.String("cert-file"), KeyFile: c.String("key-file"),
		ServerName: c.String("server-name")}
	switch {
	case files == certs.Client{}:
		return nil, nil
	case files.Validate() != nil:
		return nil, misuse(c.Command, "--cert-file and --key-file: a certificate needs both")
	}
	cfg, err := files.Config()
	if err != nil {
		return nil, fmt.Errorf("--%s", strings.Replace(err.Error(), "_file", "-file", 1))
	}
	return cfg, nil
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
	secure, err := tlsOf(c)
	if err != nil {
		return nil, nil, err
	}
	if secure != nil && !strings.HasPrefix(text, "https://") {
		return nil, nil, misuse(c.Command, "--url %s: --ca-file, --cert-file, --key-file and --server-name are for "+
			"https://", text)
	}
	h.Transport = explaining{&http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
		TLSClientConfig: secure}}
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

// explaining adds to errors of TLS which flags help.
type explaining struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (e explaining) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := e.RoundTripper.RoundTrip(r)
	if err == nil {
		return resp, nil
	}
	hint := ""
	if _, is := errors.AsType[x509.UnknownAuthorityError](err); is {
		hint = "; trust who signed it with --ca-file"
	} else if _, is := errors.AsType[x509.HostnameError](err); is {
		hint = "; if it is the node's, say so with --server-name"
	} else if _, is := errors.AsType[tls.RecordHeaderError](err); is {
		hint = "; the node does not speak TLS there: use http://"
	} else if strings.HasSuffix(err.Error(), "tls: certificate required") {
		hint = "; show one with --cert-file and --key-file"
	} else if r.URL.Scheme == "http" && errors.Is(err, io.EOF) {
		hint = "; use https:// and --ca-file if the node speaks TLS"
	}
	return nil, fmt.Errorf("%w%s", err, hint)
}

const checkHelp = `
By rule:         edgelimit check --rule per_ip --identity 192.0.2.1
By descriptors:  edgelimit check path=/login,remote_address=::1

Each argument is a descriptor, its entries separated by commas: one layer of the request, which is charged in all of
them or in none.

Exit status: 0 allowed, 1 denied, 2 no answer.`

func checkCommand() *cli.Command {
	return &cli.Command{
		Name: "check", Usage: "ask a running node whether a request may pass",
		ArgsUsage: "[KEY=VALUE[,KEY=VALUE...] ...]", Description: checkHelp,
		Flags: slices.Concat(requestFlags(ofRequest), []cli.Flag{
			ofRequest.flag("cost", "what the request is charged, in requests", new(uint64(1))),
			ofRequest.flag("peek", "ask without charging", new(bool)),
		}, nodeFlags("HTTP API", "http://"+node.DefaultHTTP, "URL", 5*time.Second), []cli.Flag{
			plain.flag("json", "print the node's answer as JSON", new(bool)),
		}),
		Action: check,
	}
}

func check(c *cli.Context) error {
	req, ok, err := requestOf(c)
	if err != nil {
		return err
	}
	req.Cost, req.Peek = c.Uint64("cost"), c.Bool("peek")
	switch {
	case !ok:
		return misuse(c.Command, "say what to check: --rule and --identity, or descriptors")
	case req.Peek && req.Cost > 1:
		return misuse(c.Command, "--peek asks about a request of cost 1: leave --cost out")
	case os.Getenv("EDGELIMIT_ADDR") != "" && !c.IsSet("url"):
		return misuse(c.Command, "EDGELIMIT_ADDR is called EDGELIMIT_URL now")
	}
	node, err := newClient(c)
	if err != nil {
		return err
	}
	a, err := node.Check(c.Context, req)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = json.NewEncoder(c.App.Writer).Encode(a)
	} else {
		_, err = fmt.Fprintln(c.App.Writer, answerText(a))
	}
	return exitStatus(err, a.Allowed)
}

func answerText(a client.Answer) string {
	var s string
	switch {
	case a.Rule == "" && a.Allowed:
		return "allowed: no rule limits this"
	case a.Allowed:
		s = fmt.Sprintf("allowed by %s: %d of %d left, all of it again in %v", a.Rule, a.Remaining, a.Limit,
			a.ResetAfter)
		s += textIf(a.Delay > 0, "; its turn is in %v", a.Delay)
	case a.RetryAfter == client.Never:
		s = fmt.Sprintf("denied by %s: more than its limit of %d can ever admit", a.Rule, a.Limit)
	default:
		s = fmt.Sprintf("denied by %s: %d of %d left, try again in %v", a.Rule, a.Remaining, a.Limit, a.RetryAfter)
	}
	return s + textIf(a.Mode == "shadow", " (in shadow mode: nothing is denied)") +
		textIf(a.Degraded, " (the node cannot see the whole cluster)")
}

const unbanHelp = `
Asks the admin listener of a node, which only its own machine reaches, unless it asks for certificates. The other nodes
follow within the gossip interval, partitioned nodes when they are back. Only bans are lifted, counts stay: a client
over its limit stays denied until its window has passed, and a request before that begins the ban anew.

By rule:         edgelimit unban --rule login --identity 192.0.2.1
By descriptors:  edgelimit unban path=/login,remote_address=192.0.2.1

Exit status: 0 lifted, or not banned as far as the node knows; 2 no answer.`

func unbanCommand() *cli.Command {
	return &cli.Command{
		Name: "unban", Usage: "lift a client's ban, on all nodes",
		ArgsUsage: "[KEY=VALUE[,KEY=VALUE...] ...]", Description: unbanHelp,
		Flags: slices.Concat(requestFlags("Whose ban"),
			nodeFlags("admin listener", "http://"+node.DefaultAdmin, "ADMIN_URL", 5*time.Second),
			[]cli.Flag{plain.flag("json", "print the node's answer as JSON", new(bool))}),
		Action: unban,
	}
}

func unban(c *cli.Context) error {
	req, ok, err := requestOf(c)
	if err != nil {
		return err
	}
	if !ok {
		return misuse(c.Command, "say whose ban to lift: --rule and --identity, or descriptors")
	}
	node, err := newClient(c)
	if err != nil {
		return err
	}
	done, err := node.Unban(c.Context, req)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return fmt.Errorf("no answer at %s (is a node running here, and is that its serve --admin?): %w",
			c.String("url"), op)
	} else if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, done)
	}
	printUnbanned(c.App.Writer, done)
	return nil
}

// followers are the nodes that follow, by the scope of a rule.
var followers = map[string]string{
	"region": "; scope region: the nodes of this region alone",
	"node":   "; scope node: this node alone, ask each of them",
}

func printUnbanned(out io.Writer, done client.Unbanned) {
	for _, r := range done.Rules {
		what := "this node knew of no ban"
		if r.Banned > 0 {
			what = fmt.Sprintf("lifted, of %v that were left", r.Banned)
		}
		what += textIf(r.RetryAfter > 0, "; still over its limit: a request within %v is denied, and bans it again",
			r.RetryAfter)
		fmt.Fprintf(out, "%s: %s%s\n", r.Rule, what, followers[r.Scope])
	}
	if done.Lifted == 0 {
		fmt.Fprintf(out, "not banned as far as this node knows; a ban that other nodes know is lifted within %v\n",
			done.Interval)
		return
	}
	fmt.Fprintf(out, "lifted on %d of %d rules with a ban; all nodes follow within %v\n", done.Lifted, len(done.Rules),
		done.Interval)
}

const healthHelp = `
For the health checks of containers that have no shell: HEALTHCHECK CMD ["/edgelimit", "health"].

Another node:   edgelimit health --url http://10.0.1.7:9100
One with TLS:   edgelimit health --url https://127.0.0.1:9100 --ca-file ca.pem

Exit status: 0 ready, 1 not ready or no answer.`

func healthCommand() *cli.Command {
	return &cli.Command{
		Name: "health", Usage: "ask a running node whether it is ready",
		Description: healthHelp,
		Flags:       nodeFlags("probes", "http://"+node.DefaultHealth+"/readyz", "HEALTH_URL", 2*time.Second),
		Action:      health,
	}
}

func health(c *cli.Context) error {
	probe, h, err := target(c)
	if err != nil {
		return err
	}
	if probe.Path == "" || probe.Path == "/" {
		probe.Path = "/readyz"
	}
	req, err := http.NewRequestWithContext(c.Context, http.MethodGet, probe.String(), nil)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := h.Do(req)
	if err != nil {
		return cli.Exit(fmt.Sprintf("no answer (is 'edgelimit serve' running?): %v", err), 1)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return cli.Exit(fmt.Sprintf("read the node's answer: %v", err), 1)
	}
	if resp.StatusCode != http.StatusOK {
		return cli.Exit(fmt.Sprintf("not ready: %s: %s", resp.Status, strings.TrimSpace(string(body))), 1)
	}
	degraded := strings.TrimRight(strings.TrimPrefix(string(body), "ok"), "\n") // why, if it is
	_, err = fmt.Fprintln(c.App.Writer, "ready"+degraded)
	return err
}
