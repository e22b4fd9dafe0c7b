package app

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/envoy"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/node/xds"
)

// asked is a request of the node, and what an HTTP request does not send.
type asked struct {
	route   string // of the reverse proxy; empty: /v1/auth asks, or the command line
	req     rules.Request
	notSent []explained
}

// explained is a layer as JSON.
type explained struct {
	Route      string   `json:"route,omitempty"`
	Descriptor string   `json:"descriptor"`
	Why        []string `json:"why"`
	Rule       string   `json:"rule,omitempty"`
	Place      string   `json:"place,omitempty"`
	Promise    string   `json:"promise,omitempty"`
	Counted    string   `json:"counted,omitempty"`
	Override   string   `json:"override,omitempty"`
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
	all, err := explainRequest(c, in)
	if err != nil {
		return err
	}
	var met []rules.Layer
	answers := []explained{}
	for i := range all {
		q := &all[i]
		if q.req.Rule == "" && q.req.Domain == "" {
			domains := in.set.Domains()
			if len(domains) != 1 {
				return misuse(c.Command, "say which --domain the descriptors are of: %s", strings.Join(domains, ", "))
			}
			q.req.Domain = domains[0]
		}
		var layers []rules.Layer
		if q.req.Rule != "" || len(q.req.Descriptors) > 0 {
			if layers, err = in.set.Explain(&q.req, in.secret, time.Now()); err != nil {
				return err
			}
		}
		first := len(answers)
		for i := range layers {
			answers = append(answers, explainLayer(&layers[i]))
		}
		answers, met = append(answers, q.notSent...), append(met, layers...)
		for i := range answers[first:] {
			answers[first+i].Route = q.route
		}
	}
	warnings := in.warnings()
	if !c.IsSet("request") {
		warnings = concerning(warnings, met)
	}
	if c.Bool("json") {
		return printJSON(c, map[string]any{"domain": all[0].req.Domain, "layers": answers, "warnings": warnings})
	}
	for i, a := range answers {
		if a.Route != "" && (i == 0 || answers[i-1].Route != a.Route) {
			fmt.Fprintln(c.App.Writer, a.Route+":")
		}
		fmt.Fprintln(c.App.Writer, a)
	}
	_, err = fmt.Fprint(c.App.Writer, warningText(warnings))
	return err
}

// concerning returns the warnings about the layers' rules or the nearest rules.
func concerning(all []node.Warning, layers []rules.Layer) []node.Warning {
	return slices.DeleteFunc(all, func(w node.Warning) bool {
		return !slices.ContainsFunc(layers, func(l rules.Layer) bool {
			return l.Rule != nil && w.Concerns(l.Rule.Name) || l.Nearest != nil && w.Concerns(l.Nearest.Name)
		})
	})
}

// explainRequest returns the requests that the flags and arguments describe, at least one.
func explainRequest(c *cli.Context, in *rulesInput) ([]asked, error) {
	if c.IsSet("request") {
		if c.Args().Present() || c.IsSet("rule") {
			return nil, misuse(c.Command, "--request stands in place of descriptors and --rule: "+
				"leave them out")
		}
		return in.describe(c)
	}
	req, ok, err := requestOf(c)
	if err == nil && !ok {
		err = misuse(c.Command, "say what to explain: descriptors, --rule and --identity, or --request")
	}
	return []asked{{req: req}}, err
}

func explainLayer(l *rules.Layer) explained {
	a := explained{Descriptor: entriesText(l.Entries), Why: slices.Clone(l.Why)}
	if l.Nearest != nil {
		a.Nearest = l.Nearest.Name
	}
	if l.Rule == nil {
		return a
	}
	a.Rule, a.Place, a.Promise, a.Counted = l.Rule.Name, l.Rule.At(), l.Rule.Describe(), entriesText(l.Counted)
	if l.ReplacedBy != nil {
		a.ReplacedBy = l.ReplacedBy.Name
	}
	if l.Limit != nil {
		a.Override = rules.DescribeLimit(l.Limit, 0)
		if !l.Until.IsZero() {
			a.Override += " until " + l.Until.UTC().Format(time.RFC3339)
		}
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
	text += "  => " + a.Rule + textIf(a.Place != a.Rule, " (%s)", a.Place) + ": " + a.Promise + "\n     "
	switch {
	case a.Listed == "allow":
		return text + "who asks is on its allow list: not limited"
	case a.Listed == "deny":
		return text + "who asks is on its deny list: denied"
	case a.Counted != "":
		return text + "counted for " + a.Counted + textIf(a.Override != "", ", which has an override: %s", a.Override)
	case a.Override != "":
		return text + "one count for everybody, with an override: " + a.Override
	}
	return text + "one count for everybody"
}

// rulesInput are rules and the configuration that they are checked with.
type rulesInput struct {
	cfg    node.Config
	chosen bool // cfg is that of --config, not the default
	set    *rules.Set
	secret rules.Secret // under which overrides are found
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
	if in.cfg.RuleServer().URL != "" {
		return in, in.readStore(c, region)
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

// describe returns the requests that the reverse proxy, or without one /v1/auth, makes of the flags' HTTP request, with
// the descriptors that it leaves out.
func (in *rulesInput) describe(c *cli.Context) (all []asked, err error) {
	method, u, client, h, err := httpRequest(c)
	if err != nil {
		return nil, err
	}
	r := &http.Request{Method: method, URL: u, Host: u.Host, Header: h}
	sender, trusted := in.sender(client)
	if r.RemoteAddr = sender; trusted {
		in.forward(h, method, u, client)
	}
	in.cfg.Requests.Derived = new(actions.Derived)
	if err := in.cfg.Requests.Derived.Set(actions.FromRules(in.set, in.cfg.Requests.Descriptors)); err != nil {
		return nil, err
	}
	if in.cfg.Proxy.Listen == "" {
		r.Method, r.URL, r.Host = http.MethodGet, &url.URL{Path: "/v1/auth"}, ""
		describer, err := actions.New(in.cfg.Requests)
		if err != nil {
			return nil, err
		}
		var req rules.Request
		describer.DescribeOriginal(r, &req)
		req.Domain = cmp.Or(c.String("domain"), req.Domain)
		return []asked{{"", req, notSent(in.cfg.Requests.Descriptors, req.Descriptors, in.cfg.NeverSent)}}, nil
	}
	met, err := in.cfg.Proxy.Explain(in.cfg.Requests, r)
	for _, m := range met {
		if m.Denied != "" {
			return nil, fmt.Errorf("the proxy denies the request whatever the rules are: %s", m.Denied)
		}
		route := "no route"
		if m.Route > 0 {
			route = fmt.Sprintf("route %d", m.Route)
		}
		m.Request.Domain = cmp.Or(c.String("domain"), m.Request.Domain)
		all = append(all, asked{route, m.Request, notSent(m.Descriptors, m.Request.Descriptors, nil)})
	}
	return all, err
}

// notSent returns as layers the descriptors of the configuration that are not among those that are sent. never says of
// one why no request has it; nothing if some have.
func notSent(all []actions.Descriptor, sent [][]rules.Entry, never func(actions.Descriptor) string) (out []explained) {
	for _, d := range all {
		if len(sent) > 0 && slices.EqualFunc(sent[0], d.Shape(), func(e rules.Entry, s rules.Shape) bool {
			return e.Key == s.Key && (!s.Fixed || e.Value == s.Value)
		}) {
			sent = sent[1:]
			continue
		}
		why := ""
		if never != nil {
			why = never(d)
		}
		if why == "" {
			var sources []string
			for _, e := range d.Entries() {
				sources = append(sources, e.Source)
			}
			why = "the request lacks one of: " + strings.Join(sources, ", ")
		}
		out = append(out, explained{Descriptor: d.String(), Why: []string{why}, NotSent: true})
	}
	return out
}

// httpRequest returns the parts of the flags' HTTP request.
func httpRequest(c *cli.Context) (method string, u *url.URL, client netip.Addr, h http.Header, err error) {
	method, target, both := strings.Cut(c.String("request"), " ")
	if !both {
		method, target = http.MethodGet, method
	}
	if u, err = url.Parse(target); err != nil || u.Path == "" {
		return "", nil, client, nil, fmt.Errorf("--request: %q, want a path or a URL, and perhaps a method first, as "+
			"in 'POST /login'", c.String("request"))
	}
	if client, err = netip.ParseAddr(c.String("client")); err != nil {
		return "", nil, client, nil, fmt.Errorf("--client: %q, want an address", c.String("client"))
	}
	h = make(http.Header)
	for _, line := range c.StringSlice("header") {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return "", nil, client, nil, fmt.Errorf("--header: %q, want NAME: VALUE", line)
		}
		h.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return method, u, client, h, nil
}

// sender returns the address of who sends the request to the node, the first trusted proxy if there is one and else its
// client, and whether it is a trusted proxy.
func (in *rulesInput) sender(client netip.Addr) (addr string, trusted bool) {
	if strings.HasPrefix(cmp.Or(in.cfg.Proxy.Listen, in.cfg.HTTP), "unix:") {
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
