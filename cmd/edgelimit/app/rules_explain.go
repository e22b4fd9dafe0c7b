package app

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/envoy"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/node/xds"
)

// explained is a layer as JSON.
type explained struct {
	Descriptor string   `json:"descriptor"`
	Why        []string `json:"why"`
	Rule       string   `json:"rule,omitempty"`
	Name       string   `json:"name,omitempty"`
	Promise    string   `json:"promise,omitempty"`
	Counted    string   `json:"counted,omitempty"`
	ReplacedBy string   `json:"replaced_by,omitempty"`
	Listed     string   `json:"listed,omitempty"`
	Nearest    string   `json:"nearest,omitempty"`
	NotSent    bool     `json:"not_sent,omitempty"`
}

func explainRules(c *cli.Context) error {
	in, err := readRules(c, c.StringSlice("rules"))
	if err != nil {
		return err
	}
	req, notSent, err := explainRequest(c, in)
	if err != nil {
		return err
	}
	if req.Rule == "" && req.Domain == "" {
		domains := in.set.Domains()
		if len(domains) != 1 {
			return misuse(c.Command, "say which --domain the descriptors are of: %s", strings.Join(domains, ", "))
		}
		req.Domain = domains[0]
	}
	var layers []rules.Layer
	if req.Rule != "" || len(req.Descriptors) > 0 {
		if layers, err = in.set.Explain(&req); err != nil {
			return err
		}
	}
	answers := []explained{}
	for i := range layers {
		answers = append(answers, explainLayer(&layers[i]))
	}
	answers = append(answers, notSent...)
	warnings := in.warnings()
	if !c.IsSet("request") {
		warnings = concerning(warnings, layers)
	}
	if c.Bool("json") {
		return printJSON(c, map[string]any{"domain": req.Domain, "layers": answers, "warnings": warnings})
	}
	for _, a := range answers {
		fmt.Fprintln(c.App.Writer, a)
	}
	_, err = fmt.Fprint(c.App.Writer, warningText(warnings))
	return err
}

// concerning returns the warnings about the layers' rules or the nearest rules.
func concerning(all []node.Warning, layers []rules.Layer) []node.Warning {
	return slices.DeleteFunc(all, func(w node.Warning) bool {
		return !slices.ContainsFunc(layers, func(l rules.Layer) bool {
			return l.Rule != nil && w.Concerns(l.Rule.FullName) || l.Nearest != nil && w.Concerns(l.Nearest.FullName)
		})
	})
}

// explainRequest returns the request that the flags and arguments describe, and what an HTTP request does not send.
func explainRequest(c *cli.Context, in *rulesInput) (rules.Request, []explained, error) {
	if c.IsSet("request") {
		if c.Args().Present() || c.IsSet("rule") {
			return rules.Request{}, nil, misuse(c.Command, "--request stands in place of descriptors and --rule: "+
				"leave them out")
		}
		return in.describe(c)
	}
	req, ok, err := requestOf(c)
	if err == nil && !ok {
		err = misuse(c.Command, "say what to explain: descriptors, --rule and --identity, or --request")
	}
	return req, nil, err
}

func explainLayer(l *rules.Layer) explained {
	a := explained{Descriptor: entriesText(l.Entries), Why: slices.Clone(l.Why)}
	if l.Nearest != nil {
		a.Nearest = l.Nearest.FullName
	}
	if l.Rule == nil {
		return a
	}
	a.Rule, a.Name, a.Promise, a.Counted = l.Rule.FullName, l.Rule.Name, l.Rule.Describe(), entriesText(l.Counted)
	if l.ReplacedBy != nil {
		a.ReplacedBy = l.ReplacedBy.FullName
	}
	a.Listed = map[rules.Listing]string{rules.AllowListed: "allow", rules.DenyListed: "deny"}[l.Listed]
	return a
}

func entriesText(entries []rules.Entry) string {
	var parts []string
	for _, e := range entries {
		parts = append(parts, e.Key+"="+e.Value)
	}
	return strings.Join(parts, ",")
}

// String returns the layer as text.
func (a explained) String() string {
	text := a.Descriptor + "\n"
	for _, why := range a.Why {
		text += "  " + why + "\n"
	}
	switch {
	case a.NotSent:
		return text + "  => not sent: limits nothing"
	case a.Rule == "":
		return text + "  => no rule: allowed"
	case a.ReplacedBy != "":
		return text + fmt.Sprintf("  => %s, but %s replaces it: this layer is not limited", a.Rule, a.ReplacedBy)
	}
	text += "  => " + a.Rule + textIf(a.Name != a.Rule, " (%s)", a.Name) + ": " + a.Promise + "\n     "
	switch {
	case a.Listed == "allow":
		return text + "who asks is on its allow list: not limited"
	case a.Listed == "deny":
		return text + "who asks is on its deny list: denied"
	case a.Counted != "":
		return text + "counted for " + a.Counted
	}
	return text + "one count for everybody"
}

// rulesInput are rules and the configuration that they are checked with.
type rulesInput struct {
	cfg    node.Config
	chosen bool // cfg is that of --config, not the default
	set    *rules.Set
}

// readRules reads the configuration and the rule files of the command line. Flags override the configuration.
func readRules(c *cli.Context, paths []string) (in *rulesInput, err error) {
	in = &rulesInput{cfg: node.DefaultConfig(), chosen: c.IsSet("config")}
	region := c.String("region")
	if in.chosen {
		if in.cfg, err = node.ReadConfig(c.String("config")); err != nil {
			return nil, err
		}
		in.cfg.Envoy, in.cfg.RulesFrom = envoy.Service, xds.Source // as edgelimit serve
		if err := in.cfg.Validate(); err != nil {
			return nil, fmt.Errorf("configuration %s: %w", c.String("config"), err)
		}
		region = cmp.Or(region, in.cfg.Region)
	}
	if len(paths) > 0 {
		in.cfg.Rules = paths
	}
	if len(in.cfg.Rules) == 0 {
		in.set = rulefile.Sample()
		return in, nil
	}
	in.set, err = loadRules(c, in.cfg, region, in.cfg.Rules...)
	return in, err
}

// warnings returns those of the configuration with the rules. Those of the default configuration, which may not be the
// node's, are hints.
func (in *rulesInput) warnings() []node.Warning {
	found := append([]node.Warning{}, in.cfg.Warnings(in.set)...)
	for i := range found {
		found[i].Hint = found[i].Hint || !in.chosen && found[i].File == "" // a file stays what it is
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

// describe returns the request that /v1/auth makes of the flags' HTTP request, and as layers the descriptors of the
// configuration that it leaves out.
func (in *rulesInput) describe(c *cli.Context) (req rules.Request, notSent []explained, err error) {
	r, err := in.authRequest(c)
	if err != nil {
		return req, nil, err
	}
	describer, err := actions.New(in.cfg.Requests)
	if err != nil {
		return req, nil, err
	}
	describer.DescribeOriginal(r, &req)
	req.Domain = cmp.Or(c.String("domain"), req.Domain)
	rest := req.Descriptors
	for _, d := range in.cfg.Requests.Descriptors {
		if len(rest) > 0 && slices.EqualFunc(rest[0], d.Shape(), func(e rules.Entry, s rules.Shape) bool {
			return e.Key == s.Key && (!s.Fixed || e.Value == s.Value)
		}) {
			rest = rest[1:]
			continue
		}
		why := in.cfg.NeverSent(d)
		if why == "" {
			var sources []string
			for _, e := range d.Entries() {
				sources = append(sources, e.Source)
			}
			why = "the request lacks one of: " + strings.Join(sources, ", ")
		}
		notSent = append(notSent, explained{Descriptor: d.String(), Why: []string{why}, NotSent: true})
	}
	return req, notSent, nil
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
