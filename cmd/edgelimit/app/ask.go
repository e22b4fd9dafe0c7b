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
	"github.com/edgelimit/edgelimit/node/text"
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

// adminFlags are those of commands that ask the listener for operators.
func adminFlags() []cli.Flag {
	return append(nodeFlags("admin listener", "http://"+node.DefaultAdmin, "ADMIN_URL", 5*time.Second),
		plain.flag("token-file", "`FILE` with the token to show, where the node asks for one", new(string),
			"ADMIN_TOKEN_FILE"),
		plain.flag("json", "print JSON", new(bool)))
}

// bearer shows a token.
type bearer struct {
	http.RoundTripper
	token string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(r)
}

// withToken has the token of --token-file shown, if the command has one.
func withToken(c *cli.Context, h http.RoundTripper) (http.RoundTripper, error) {
	name := c.String("token-file")
	if name == "" {
		return h, nil
	}
	token, err := node.ReadPassword(name)
	if err != nil {
		return nil, fmt.Errorf("--token-file: %w", err)
	}
	if strings.ContainsAny(token, " \t") {
		return nil, fmt.Errorf("--token-file: %s: want a token and nothing else, not a node's admin_tokens_file", name)
	}
	return bearer{h, token}, nil
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
		d, err := descriptorOf(c, arg)
		if err != nil {
			return req, false, err
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req, req.Rule != "" || len(req.Descriptors) > 0, nil
}

// descriptorOf returns the descriptor of an argument KEY=VALUE,KEY=VALUE.
func descriptorOf(c *cli.Context, arg string) (d []rules.Entry, err error) {
	for pair := range strings.SplitSeq(arg, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, misuse(c.Command, "descriptor %q: want KEY=VALUE, several separated by commas", arg)
		}
		d = append(d, rules.Entry{Key: key, Value: value})
	}
	return d, nil
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
	if h.Transport, err = withToken(c, h.Transport); err != nil {
		return nil, nil, err
	}
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
	here := u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()
	if c.String("token-file") != "" && u.Scheme == "http" && !here {
		return nil, nil, misuse(c.Command, "--url %s: the token of --token-file would travel in clear: use https://",
			text)
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
			ofRequest.flag("cost", "what the request is charged, in requests; 0 is as --peek", new("1")),
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
	cost, err := rules.ParseCost(c.String("cost"))
	req.Peek = c.Bool("peek")
	req.SetCost(cost)
	switch {
	case err != nil:
		return misuse(c.Command, "--cost %s: want a whole number such as 1", c.String("cost"))
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
			text.Duration(a.ResetAfter))
		s += textIf(a.Delay > 0, "; its turn is in %v", text.Duration(a.Delay))
	case a.RetryAfter == client.Never:
		s = fmt.Sprintf("denied by %s: more than its limit of %d can ever admit", a.Rule, a.Limit)
	case a.Banned:
		s = fmt.Sprintf("denied by %s: banned, try again in %v", a.Rule, text.Duration(a.RetryAfter))
	default:
		s = fmt.Sprintf("denied by %s: %d of %d left, try again in %v", a.Rule, a.Remaining, a.Limit,
			text.Duration(a.RetryAfter))
	}
	return s + textIf(a.Mode == "shadow", " (in shadow mode: nothing is denied)") +
		textIf(a.Degraded, " (the node cannot see the whole cluster)")
}

const healthHelp = `
For the health checks of containers that have no shell: HEALTHCHECK CMD ["/edgelimit", "health"].

Another node:   edgelimit health --url http://10.0.1.7:7948
One with TLS:   edgelimit health --url https://127.0.0.1:7948 --ca-file ca.pem

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
