package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	_ "time/tzdata" // so that schedules know time zones where the system does not, as in an empty image

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node/rules"
)

func rulesCommand() *cli.Command {
	reading := []cli.Flag{
		&cli.StringFlag{Name: "default-algorithm", Usage: "`NAME` of the algorithm of rules that name none", Value: "sliding_window"},
		&cli.IntFlag{Name: "ipv6-prefix", Usage: "how many `BITS` of an IPv6 address tell one client from another", Value: rules.DefaultIPv6Prefix},
		&cli.BoolFlag{Name: "merge-domains", Usage: "let several files give descriptors of one domain"},
		&cli.BoolFlag{Name: "json", Usage: "print JSON"},
	}
	in := &cli.StringFlag{Name: "region", Usage: "`NAME` of the region in which the rules are looked at (default: all of them together)"}
	return &cli.Command{
		Name:  "rules",
		Usage: "validate rule files, explain what they do, and compare them",
		Subcommands: []*cli.Command{
			{
				Name: "validate", Usage: "say all that is wrong with rule files", ArgsUsage: "FILE...",
				Description: "Files and directories are read together, as serve --rules reads them.\n\nExit status: 0 valid, 1 not valid, 2 not read.",
				Flags:       reading, Action: validateRules,
			},
			{
				Name: "explain", Usage: "say which rules a request meets, and why", ArgsUsage: "[KEY=VALUE[,KEY=VALUE...] ...]",
				Description: "By descriptors:   edgelimit rules explain --rules rules.yaml path=/login,remote_address=192.0.2.1\n" +
					"By rule:          edgelimit rules explain --rules rules.yaml --rule per_ip --identity 192.0.2.1\n" +
					"(one argument a descriptor, its entries separated by commas)\n\nExit status: 0 explained, 1 the rules are not valid, 2 no answer.",
				Flags: append([]cli.Flag{
					&cli.StringSliceFlag{Name: "rules", Usage: "rule `FILE` or directory (repeatable; default: the sample)"},
					&cli.StringFlag{Name: "domain", Usage: "`NAME` of the domain of the descriptors (default: the only one)"},
					&cli.StringFlag{Name: "rule", Usage: "`NAME` of the rule"},
					&cli.StringFlag{Name: "identity", Usage: "`WHO` is counted under the rule"}, in,
				}, reading...),
				Action: explainRules,
			},
			{
				Name: "diff", Usage: "say what it does to put one rule file in the place of another", ArgsUsage: "OLD NEW",
				Description: "A rule is the same when it stands at the same place of the tree. Another number keeps its counts; another window or\n" +
					"algorithm starts them anew.\n\nExit status: 0 compared, 1 the rules are not valid, 2 not read.",
				Flags: append([]cli.Flag{in}, reading...), Action: diffRules,
			},
			{
				Name: "schema", Usage: "print the JSON Schema of rule files, for editors",
				Action: func(c *cli.Context) error {
					_, err := c.App.Writer.Write(rules.Schema)
					return err
				},
			},
		},
	}
}

// loadRules reads rule files as the flags say. Problems of the files are printed: the error says only how many there are.
func loadRules(c *cli.Context, paths ...string) (*rules.Set, error) {
	opt := rules.Options{Algorithm: c.String("default-algorithm"), IPv6Prefix: c.Int("ipv6-prefix"), MergeDomains: c.Bool("merge-domains")}
	set, err := opt.Load(paths...)
	if err != nil {
		return nil, reportProblems(c, err)
	}
	if region := c.String("region"); region != "" {
		set = set.In(region)
	}
	return set, nil
}

// problem is a problem of a rule file as JSON.
type problem struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Reason string `json:"reason"`
	Source string `json:"source"`
}

// reportProblems prints what is wrong with rule files. What is wrong otherwise, such as a file that is not there, is returned as it is.
func reportProblems(c *cli.Context, err error) error {
	problems, rest := []problem{}, []error{}
	for _, e := range rules.Problems(err) {
		if p, ok := errors.AsType[*rules.Error](e); ok {
			problems = append(problems, problem{p.File, p.Line, p.Column, p.Reason, p.Source})
			if !c.Bool("json") {
				fmt.Fprintln(c.App.Writer, p)
				for line := range strings.Lines(p.Excerpt()) {
					fmt.Fprintln(c.App.Writer, "  "+strings.TrimSuffix(line, "\n"))
				}
			}
			continue
		}
		rest = append(rest, e)
	}
	if c.Bool("json") && len(problems) > 0 {
		if err := printJSON(c, map[string]any{"valid": false, "problems": problems}); err != nil {
			return err
		}
	}
	switch {
	case len(rest) > 0:
		return errors.Join(rest...)
	case len(problems) == 1:
		return cli.Exit("1 problem", 1)
	}
	return cli.Exit(fmt.Sprintf("%d problems", len(problems)), 1)
}

func printJSON(c *cli.Context, v any) error {
	enc := json.NewEncoder(c.App.Writer)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func validateRules(c *cli.Context) error {
	if !c.Args().Present() {
		return errors.New("say which files to validate; see edgelimit rules validate --help")
	}
	set, err := loadRules(c, c.Args().Slice()...)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, map[string]any{"valid": true, "rules": len(set.Rules()), "problems": []problem{}})
	}
	_, err = fmt.Fprintf(c.App.Writer, "valid: %d rules\n", len(set.Rules()))
	return err
}

func diffRules(c *cli.Context) error {
	if c.NArg() != 2 {
		return errors.New("give two rule files or directories, the old and the new; see edgelimit rules diff --help")
	}
	before, err := loadRules(c, c.Args().Get(0))
	if err != nil {
		return err
	}
	after, err := loadRules(c, c.Args().Get(1))
	if err != nil {
		return err
	}
	changes := rules.Diff(before, after)
	if c.Bool("json") {
		return printJSON(c, map[string]any{"changes": append([]rules.Change{}, changes...)})
	}
	if len(changes) == 0 {
		fmt.Fprintln(c.App.Writer, "no rule changes")
	}
	for _, ch := range changes {
		fmt.Fprintln(c.App.Writer, changeText(ch))
	}
	return nil
}

// changeText says a change to a person.
func changeText(ch rules.Change) string {
	switch ch.Kind {
	case rules.Added:
		return fmt.Sprintf("+ %s\n    %s", ch.Rule, ch.New)
	case rules.Removed:
		return fmt.Sprintf("- %s\n    %s", ch.Rule, ch.Old)
	}
	counts := "its counts are kept"
	if ch.Counts == "anew" {
		counts = "its counts start anew"
	}
	if ch.Old == ch.New {
		return fmt.Sprintf("~ %s (%s)\n    %s, but for its name, metadata or lists", ch.Rule, counts, ch.New)
	}
	return fmt.Sprintf("~ %s (%s)\n    from %s\n    to   %s", ch.Rule, counts, ch.Old, ch.New)
}
