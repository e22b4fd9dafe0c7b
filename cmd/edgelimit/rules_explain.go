package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node/rules"
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
}

func explainRules(c *cli.Context) error {
	req, err := explainRequest(c)
	if err != nil {
		return err
	}
	set := rules.Sample()
	if paths := c.StringSlice("rules"); len(paths) > 0 {
		if set, err = loadRules(c, paths...); err != nil {
			return err
		}
	}
	if req.Rule == "" && req.Domain == "" {
		domains := set.Domains()
		if len(domains) != 1 {
			return fmt.Errorf("say which --domain the descriptors are of: %s", strings.Join(domains, ", "))
		}
		req.Domain = domains[0]
	}
	layers, err := set.Explain(&req)
	if err != nil {
		return err
	}
	answers := make([]explained, len(layers))
	for i := range layers {
		answers[i] = explainLayer(&layers[i])
	}
	if c.Bool("json") {
		return printJSON(c, map[string]any{"domain": req.Domain, "layers": answers})
	}
	for _, a := range answers {
		fmt.Fprintln(c.App.Writer, a)
	}
	return nil
}

// explainRequest is the request that the flags and arguments name.
func explainRequest(c *cli.Context) (rules.Request, error) {
	req := rules.Request{Domain: c.String("domain"), Rule: c.String("rule"), Identity: c.String("identity")}
	for _, arg := range c.Args().Slice() {
		entries, err := parseDescriptor(arg)
		if err != nil {
			return req, err
		}
		var descriptor []rules.Entry
		for _, e := range entries {
			descriptor = append(descriptor, rules.Entry{Key: e.Key, Value: e.Value})
		}
		req.Descriptors = append(req.Descriptors, descriptor)
	}
	if req.Rule == "" && len(req.Descriptors) == 0 {
		return req, errors.New("say what to explain: descriptors, or --rule and --identity; see edgelimit rules explain --help")
	}
	return req, nil
}

func explainLayer(l *rules.Layer) explained {
	a := explained{Descriptor: entriesText(l.Entries), Why: slices.Clone(l.Why)}
	if l.Rule == nil {
		return a
	}
	a.Rule, a.Name, a.Promise, a.Counted = l.Rule.FullName, l.Rule.Name, l.Rule.Describe(), entriesText(l.Counted)
	if l.ReplacedBy != nil {
		a.ReplacedBy = l.ReplacedBy.FullName
	}
	switch l.Listed {
	case rules.AllowListed:
		a.Listed = "allow"
	case rules.DenyListed:
		a.Listed = "deny"
	}
	return a
}

func entriesText(entries []rules.Entry) string {
	var parts []string
	for _, e := range entries {
		parts = append(parts, e.Key+"="+e.Value)
	}
	return strings.Join(parts, ",")
}

// String says the layer to a person.
func (a explained) String() string {
	var b strings.Builder
	fmt.Fprintln(&b, a.Descriptor)
	for _, why := range a.Why {
		fmt.Fprintln(&b, "  "+why)
	}
	switch {
	case a.Rule == "":
		fmt.Fprint(&b, "  => no rule: allowed")
		return b.String()
	case a.ReplacedBy != "":
		fmt.Fprintf(&b, "  => %s, but %s replaces it: this layer is not limited", a.Rule, a.ReplacedBy)
		return b.String()
	}
	fmt.Fprintf(&b, "  => %s", a.Rule)
	if a.Name != a.Rule {
		fmt.Fprintf(&b, " (%s)", a.Name)
	}
	fmt.Fprintf(&b, ": %s", a.Promise)
	switch {
	case a.Listed == "allow":
		fmt.Fprint(&b, "\n     who asks is on its allow list: not limited")
	case a.Listed == "deny":
		fmt.Fprint(&b, "\n     who asks is on its deny list: denied")
	case a.Counted != "":
		fmt.Fprintf(&b, "\n     counted for %s", a.Counted)
	default:
		fmt.Fprint(&b, "\n     one count for everybody")
	}
	return b.String()
}
