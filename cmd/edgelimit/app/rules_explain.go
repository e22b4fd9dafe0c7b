package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
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
	Nearest    string   `json:"nearest,omitempty"`
	NotSent    bool     `json:"not_sent,omitempty"`
}

func explainRules(c *cli.Context) error {
	in, err := readRules(c, c.StringSlice("rules"))
	if err != nil {
		return err
	}
	req, sent, err := explainRequest(c, in)
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
	answers := make([]explained, len(layers), len(layers)+len(sent))
	for i := range layers {
		answers[i] = explainLayer(&layers[i])
	}
	answers = append(answers, notSent(sent)...)
	warnings := concerning(in.warnings(), layers, sent)
	if c.Bool("json") {
		return printJSON(c, map[string]any{"domain": req.Domain, "layers": answers, "warnings": warnings})
	}
	for _, a := range answers {
		fmt.Fprintln(c.App.Writer, a)
	}
	_, err = fmt.Fprint(c.App.Writer, warningText(warnings))
	return err
}

// concerning returns the warnings about the layers' rules or the nearest rules; all warnings for an HTTP request.
func concerning(all []node.Warning, layers []rules.Layer, sent []sentDescriptor) []node.Warning {
	found := []node.Warning{}
	for _, w := range all {
		concerns := slices.ContainsFunc(layers, func(l rules.Layer) bool {
			return l.Rule != nil && w.Concerns(l.Rule.FullName) || l.Nearest != nil && w.Concerns(l.Nearest.FullName)
		})
		if concerns || sent != nil {
			found = append(found, w)
		}
	}
	return found
}

// explainRequest returns the request that the flags and arguments describe, and for an HTTP request its descriptors.
func explainRequest(c *cli.Context, in *rulesInput) (rules.Request, []sentDescriptor, error) {
	if c.IsSet("request") {
		if c.Args().Present() || c.IsSet("rule") {
			return rules.Request{}, nil, misuse(c.Command, "--request stands in place of descriptors and --rule: "+
				"leave them out")
		}
		return in.describe(c)
	}
	req, err := requestOf(c)
	if err == nil && req.Rule == "" && len(req.Descriptors) == 0 {
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

// String returns the layer as text.
func (a explained) String() string {
	var b strings.Builder
	fmt.Fprintln(&b, a.Descriptor)
	for _, why := range a.Why {
		fmt.Fprintln(&b, "  "+why)
	}
	switch {
	case a.NotSent:
		fmt.Fprint(&b, "  => not sent: limits nothing")
		return b.String()
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
