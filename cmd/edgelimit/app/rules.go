package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	_ "time/tzdata" // so that schedules know time zones where the system does not, as in an empty image

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

func rulesCommand() *cli.Command {
	const how = "How rules are read (as the nodes read them)"
	reading := []cli.Flag{
		&cli.StringFlag{Name: "default-algorithm", Usage: "`NAME` of the algorithm of rules that name none",
			Value: "sliding_window", Category: how},
		&cli.IntFlag{Name: "ipv6-prefix", Usage: "how many `BITS` of an IPv6 address tell one client from another",
			Value: rulefile.DefaultIPv6Prefix, Category: how},
		&cli.BoolFlag{Name: "merge-domains", Usage: "let several files give descriptors of one domain", Category: how},
		&cli.BoolFlag{Name: "json", Usage: "print JSON"},
	}
	in := &cli.StringFlag{Name: "region", Category: how,
		Usage: "`NAME` of the region in which the rules are looked at (default: all of them together)"}
	return &cli.Command{
		Name:  "rules",
		Usage: "validate rule files, explain what they do, and compare them",
		Subcommands: []*cli.Command{
			{
				Name: "validate", Usage: "say all that is wrong with rule files", ArgsUsage: "FILE...",
				Description: "Files and directories are read together, as serve --rules reads them;\n" +
					"without any, those that --config names. Warnings are of what is probably\n" +
					"not meant: rules that no request to /v1/auth can meet, misspelt keys and\n" +
					"domains. Hints are of what may be meant; without --config all are.\n\n" +
					"edgelimit rules validate rules.yaml\n\n" +
					"Exit status: 0 valid, 1 not valid, or with --strict if there are warnings,\n2 not read.",
				Flags: append([]cli.Flag{
					configFlag(), &cli.BoolFlag{Name: "strict", Usage: "fail if there are warnings", Category: how},
				}, reading...),
				Action: validateRules,
			},
			{
				Name: "explain", Usage: "say which rules a request meets, and why",
				ArgsUsage: "[KEY=VALUE[,KEY=VALUE...] ...]",
				Description: "By descriptors:   edgelimit rules explain --rules rules.yaml path=/login,ip=::1\n" +
					"By rule:          edgelimit rules explain --rule per_ip --identity 192.0.2.1\n" +
					"By HTTP request:  edgelimit rules explain --config node.yaml \\\n" +
					"                    --request 'POST /login' --client 192.0.2.1\n\n" +
					"Each argument is a descriptor, its entries separated by commas; of an HTTP\n" +
					"request they are those that /v1/auth makes.\n\n" +
					"Exit status: 0 explained, 1 the rules are not valid, 2 no answer.",
				Flags: slices.Concat(requestFlags("The request"), []cli.Flag{
					&cli.StringFlag{Name: "request", Category: "The request",
						Usage: "HTTP `REQUEST` that a proxy asks /v1/auth about, as in 'POST " +
							"https://shop.example/login'"},
					&cli.StringFlag{Name: "client", Usage: "`ADDRESS` of the HTTP request's client", Value: "192.0.2.1",
						Category: "The request"},
					&cli.StringSliceFlag{Name: "header", Category: "The request",
						Usage: "`HEADER` of the HTTP request, as in 'X-Api-Key: a' (repeatable)"},
					&cli.StringSliceFlag{Name: "rules", Category: how,
						Usage: "rule `FILE` or directory (repeatable; default: those of --config, or the sample)"},
					in, configFlag(),
				}, reading),
				Action: explainRules,
			},
			{
				Name: "diff", Usage: "say what it does to put one rule file in the place of another",
				ArgsUsage: "OLD NEW",
				Description: "A rule is the same when it stands at the same place of the tree. Another number keeps " +
					"its " +
					"counts; another window or algorithm starts them anew.\n\nedgelimit rules diff rules.yaml " +
					"tighter.yaml\n\n" +
					"Exit status: 0 compared, 1 the rules are not valid, 2 not read.",
				Flags: append([]cli.Flag{in}, reading...), Action: diffRules,
			},
			{
				Name: "schema", Usage: "print the JSON Schema of rule files, for editors",
				Description: "edgelimit rules schema > rules.schema.json",
				Action: func(c *cli.Context) error {
					_, err := c.App.Writer.Write(rulefile.Schema())
					return err
				},
			},
		},
	}
}

// loadRules reads rule files by the flags. It prints problems of the files; the error is their number.
func loadRules(c *cli.Context, paths ...string) (*rules.Set, error) {
	return loadRulesBy(c, readingOptions(c, nil), c.String("region"), paths...)
}

// loadRulesBy is loadRules with other options, for a region, or for all if it is empty.
func loadRulesBy(c *cli.Context, opt rulefile.Options, region string, paths ...string) (*rules.Set, error) {
	set, err := opt.Load(paths...)
	if err != nil {
		return nil, reportProblems(c, err)
	}
	if region != "" {
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

// reportProblems prints problems of rule files. It returns other errors, such as a missing file, as they are.
func reportProblems(c *cli.Context, err error) error {
	problems, rest := []problem{}, []error{}
	for _, e := range rulefile.Problems(err) {
		if p, ok := errors.AsType[*rulefile.Error](e); ok {
			problems = append(problems, problem{p.File, p.Line, p.Column, p.Reason, p.Source})
			if !c.Bool("json") {
				fmt.Fprintln(c.App.Writer, p)
				writeExcerpt(c.App.Writer, p)
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

// unnamedText hints at rules without a name, if there are any.
func unnamedText(set *rules.Set) string {
	unnamed := set.Unnamed()
	if len(unnamed) == 0 {
		return ""
	}
	return fmt.Sprintf("hint: responses and metrics call %d of them by a hash, such as %s for %s, as values could be "+
		"secrets: give them a name\n", len(unnamed), unnamed[0].PublicName, unnamed[0].FullName)
}

func validateRules(c *cli.Context) error {
	if !c.Args().Present() && !c.IsSet("config") {
		return misuse(c.Command, "say which files to validate, or --config")
	}
	in, err := readRules(c, c.Args().Slice())
	if err != nil {
		return err
	}
	warnings := in.warnings()
	if c.Bool("json") {
		err = printJSON(c, map[string]any{
			"valid": true, "rules": len(in.set.Rules()), "problems": []problem{}, "warnings": warnings,
		})
	} else {
		_, err = fmt.Fprintf(c.App.Writer, "valid: %d rules\n%s%s", len(in.set.Rules()), warningText(warnings),
			unnamedText(in.set))
	}
	count := 0
	for _, w := range warnings {
		if !w.Hint {
			count++
		}
	}
	if err == nil && c.Bool("strict") && count > 0 {
		return cli.Exit(fmt.Sprintf("warnings: %d", count), 1)
	}
	return err
}

func diffRules(c *cli.Context) error {
	if c.NArg() != 2 {
		return misuse(c.Command, "give two rule files or directories, the old and the new")
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
