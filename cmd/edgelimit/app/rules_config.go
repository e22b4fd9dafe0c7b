package app

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

func configFlag() cli.Flag {
	return &cli.StringFlag{Name: "config",
		Usage: "configuration `FILE` of the node: its requests, rules and region (default: the default one)"}
}

// rulesInput are rules and the configuration that they are checked with.
type rulesInput struct {
	cfg    node.Config
	chosen bool // cfg is that of --config, not the default
	set    *rules.Set
}

// readRules reads the configuration and the rule files of the command line. Flags override the configuration.
func readRules(c *cli.Context, paths []string) (*rulesInput, error) {
	in := &rulesInput{cfg: node.DefaultConfig(), chosen: c.IsSet("config")}
	region := c.String("region")
	if in.chosen {
		var err error
		if in.cfg, err = node.ReadConfig(c.String("config")); err != nil {
			return nil, err
		}
		if err := in.cfg.Validate(); err != nil {
			return nil, fmt.Errorf("configuration %s: %w", c.String("config"), err)
		}
		if region == "" {
			region = in.cfg.Region
		}
	}
	if len(paths) > 0 {
		in.cfg.Rules = paths
	}
	if len(in.cfg.Rules) == 0 {
		in.set = rulefile.Sample()
		return in, nil
	}
	opt := readingOptions(c, nil)
	if in.chosen {
		opt = readingOptions(c, &in.cfg)
	}
	var err error
	in.set, err = loadRulesBy(c, opt, region, in.cfg.Rules...)
	return in, err
}

// readingOptions returns the flags, or the configuration's settings where they are not set.
func readingOptions(c *cli.Context, cfg *node.Config) rulefile.Options {
	opt := rulefile.Options{
		Algorithm: c.String("default-algorithm"), IPv6Prefix: c.Int("ipv6-prefix"),
		MergeDomains: c.Bool("merge-domains"),
	}
	if cfg == nil {
		return opt
	}
	if !c.IsSet("default-algorithm") {
		opt.Algorithm = cfg.DefaultAlgorithm
	}
	if !c.IsSet("ipv6-prefix") {
		opt.IPv6Prefix = cfg.IPv6Prefix
	}
	if !c.IsSet("merge-domains") {
		opt.MergeDomains = cfg.MergeDomains
	}
	return opt
}

// warnings returns those of the configuration with the rules. Those of the default configuration, which may not be the
// node's, are hints.
func (in *rulesInput) warnings() []node.Warning {
	found := append([]node.Warning{}, in.cfg.Warnings(in.set)...)
	for i := range found {
		found[i].Hint = found[i].Hint || !in.chosen
	}
	return found
}

// warningText returns a line for each warning.
func warningText(warnings []node.Warning) string {
	var b strings.Builder
	for _, w := range warnings {
		fmt.Fprintf(&b, "%s: %s\n", map[bool]string{false: "warning", true: "hint"}[w.Hint], w.Text)
	}
	return b.String()
}

// sentDescriptor is a descriptor of the configuration, and why /v1/auth leaves it out of a request, if it does.
type sentDescriptor struct {
	descriptor actions.Descriptor
	missing    string
}

// describe returns the request that /v1/auth makes of the flags' HTTP request.
func (in *rulesInput) describe(c *cli.Context) (req rules.Request, sent []sentDescriptor, err error) {
	r, err := in.authRequest(c)
	if err != nil {
		return req, nil, err
	}
	describer, err := actions.New(in.cfg.Requests)
	if err != nil {
		return req, nil, err
	}
	describer.DescribeOriginal(r, &req)
	if domain := c.String("domain"); domain != "" {
		req.Domain = domain
	}
	rest := req.Descriptors
	for _, d := range in.cfg.Requests.Descriptors {
		s := sentDescriptor{descriptor: d}
		if len(rest) > 0 && slices.EqualFunc(rest[0], d.Shape(), func(e rules.Entry, s rules.Shape) bool {
			return e.Key == s.Key && (!s.Fixed || e.Value == s.Value)
		}) {
			rest = rest[1:]
		} else if s.missing = in.cfg.NeverSent(d); s.missing == "" {
			s.missing = "the request lacks one of: " + sourcesText(d)
		}
		sent = append(sent, s)
	}
	return req, sent, nil
}

// sourcesText lists the sources of a descriptor's values.
func sourcesText(d actions.Descriptor) string {
	var parts []string
	for _, e := range d.Entries() {
		parts = append(parts, e.Source)
	}
	return strings.Join(parts, ", ")
}

// notSent returns the descriptors that /v1/auth leaves out, as layers.
func notSent(sent []sentDescriptor) (layers []explained) {
	for _, s := range sent {
		if s.missing != "" {
			why := []string{s.missing}
			layers = append(layers, explained{Descriptor: s.descriptor.String(), Why: why, NotSent: true})
		}
	}
	return layers
}

// authRequest returns the request to /v1/auth that the first trusted proxy sends for the flags' HTTP request. Without
// trusted proxies its client sends it.
func (in *rulesInput) authRequest(c *cli.Context) (*http.Request, error) {
	method, target, both := strings.Cut(c.String("request"), " ")
	if !both {
		method, target = http.MethodGet, method
	}
	u, err := url.Parse(target)
	if err != nil || u.Path == "" {
		return nil, fmt.Errorf("--request: %q, want a path or a URL, and perhaps a method first, as in 'POST /login'",
			c.String("request"))
	}
	client, err := netip.ParseAddr(c.String("client"))
	if err != nil {
		return nil, fmt.Errorf("--client: %q, want an address", c.String("client"))
	}
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/v1/auth"}, Header: make(http.Header)}
	for _, line := range c.StringSlice("header") {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, fmt.Errorf("--header: %q, want NAME: VALUE", line)
		}
		r.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	var trusted bool
	if r.RemoteAddr, trusted = in.sender(client); trusted {
		in.forward(r.Header, method, u, client)
	}
	return r, nil
}

// sender returns the address of the sender to /v1/auth, and whether it is a trusted proxy.
func (in *rulesInput) sender(client netip.Addr) (addr string, trusted bool) {
	if strings.HasPrefix(in.cfg.HTTP, "unix:") {
		return "@", slices.Contains(in.cfg.Requests.TrustedProxies, actions.UnixPeers)
	}
	for _, t := range in.cfg.Requests.TrustedProxies {
		if prefix, err := rules.ParsePrefix(t); err == nil {
			return netip.AddrPortFrom(prefix.Addr(), 1).String(), true
		}
	}
	return netip.AddrPortFrom(client, 1).String(), false
}

// forward sets the headers in which a trusted proxy sends the original request.
func (in *rulesInput) forward(h http.Header, method string, u *url.URL, client netip.Addr) {
	switch text := client.String(); in.cfg.Requests.ClientHeader {
	case actions.XRealIP:
		h.Set("X-Real-Ip", text)
	case actions.Forwarded:
		if client.Is6() {
			text = `"[` + text + `]"`
		}
		h.Set("Forwarded", "for="+text)
	default:
		h.Set("X-Forwarded-For", text)
	}
	prefix := "X-Forwarded-"
	if in.cfg.Requests.OriginalHeaders == "x-original" {
		prefix = "X-Original-"
	}
	h.Set(prefix+"Method", method)
	h.Set(prefix+"Uri", u.RequestURI())
	if u.Host != "" {
		h.Set(prefix+"Host", u.Host)
	}
}
