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
	text += "  => " + a.Rule
	if a.Name != a.Rule {
		text += " (" + a.Name + ")"
	}
	text += ": " + a.Promise + "\n     "
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
