package app

import (
	"errors"
	"fmt"
	"slices"
	_ "time/tzdata" // so that schedules know time zones where the system does not, as in an empty image

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

const (
	validateHelp = `
Files and directories are read together, as serve --rules reads them; without any, those that --config names. Warnings
are of what is probably not meant: rules that no request to /v1/auth can meet, misspelt keys and domains. Hints are of
what may be meant; without --config all are.

edgelimit rules validate rules.yaml

Exit status: 0 valid, 1 not valid, or with --strict if there are warnings, 2 not read.`

	explainHelp = `
By descriptors:  edgelimit rules explain --rules rules.yaml path=/login,ip=::1
By rule:         edgelimit rules explain --rule per_ip --identity 192.0.2.1
By request:      edgelimit rules explain --config node.yaml \
                   --request 'POST /login' --client 192.0.2.1

Each argument is a descriptor, its entries separated by commas; of an HTTP request they are those that /v1/auth makes,
or with proxy.listen the reverse proxy, by the routes that it meets.

Exit status: 0 explained, 1 the rules are not valid, 2 no answer.`

	diffHelp = `
A rule is the same when it stands at the same place of the tree. Another number keeps its counts; another window or
algorithm starts them anew.

edgelimit rules diff rules.yaml tighter.yaml

Exit status: 0 compared, 1 the rules are not valid, 2 not read.`
)

const ofReading group = "How rules are read (as the nodes read them)"

// readingSettings are the settings of a configuration by which rules are read.
func readingSettings(cfg *node.Config) []setting {
	return []setting{
		{ofReading, "default-algorithm", "`NAME` of the algorithm of rules that name none", &cfg.DefaultAlgorithm},
		{ofReading, "ipv6-prefix", "how many `BITS` of an IPv6 address tell one client from another", &cfg.IPv6Prefix},
		{ofReading, "merge-domains", "let several files give descriptors of one domain", &cfg.MergeDomains},
		{ofReading, "compatibility", "`SERVER` whose rule files these are: ratelimit, of envoyproxy/ratelimit " +
			"(default: none)", &cfg.Compatibility},
		{ofReading, "ignore-dot-files", "leave out files and directories that begin with a dot", &cfg.IgnoreDotFiles},
	}
}

// readingFlags are the flags of the reading settings.
func readingFlags() (flags []cli.Flag) {
	for _, s := range readingSettings(new(node.DefaultConfig())) {
		flags = append(flags, s.flag(s.name, s.usage, s.to))
	}
	return flags
}

func rulesCommand() *cli.Command {
	reading := append(readingFlags(), plain.flag("json", "print JSON", new(bool)))
	config := plain.flag("config", "configuration `FILE` of the node: its requests, rules and region (default: the "+
		"default one)", new(string))
	region := ofReading.flag("region", "`NAME` of the region in which the rules are looked at (default: all of them "+
		"together)", new(string))
	validating := []cli.Flag{config, ofReading.flag("strict", "fail if there are warnings", new(bool))}
	explaining := []cli.Flag{
		ofRequest.flag("request", "HTTP `REQUEST` to the reverse proxy, or that a proxy asks /v1/auth about, as in "+
			"'POST https://shop.example/login'", new(string)),
		ofRequest.flag("client", "`ADDRESS` of the HTTP request's client", new("192.0.2.1")),
		ofRequest.flag("header", "`HEADER` of the HTTP request, as in 'X-Api-Key: a' (repeatable)", new([]string)),
		ofReading.flag("rules", "rule `FILE` or directory (repeatable; default: those of --config, or the sample)",
			new([]string)),
		region, config, keyFileFlag(),
	}
	validating, explaining = append(validating, reachingFlags()...), append(explaining, reachingFlags()...)
	publishing := slices.Concat(redisFlags(), reachingFlags(), publishingFlags(), []cli.Flag{config}, reading)
	looking := slices.Concat(redisFlags(), reachingFlags(), []cli.Flag{config, reading[len(reading)-1]})
	return &cli.Command{
		Name:  "rules",
		Usage: "validate rule files, explain and compare them, and publish them to Redis",
		Subcommands: []*cli.Command{
			{
				Name: "validate", Usage: "say all that is wrong with rule files", ArgsUsage: "FILE...",
				Description: validateHelp, Flags: slices.Concat(validating, reading), Action: validateRules,
			},
			{
				Name: "list", Usage: "list the rules of files: names, places and promises", ArgsUsage: "[FILE...]",
				Description: rulesListHelp, Flags: slices.Concat([]cli.Flag{region, config}, reading),
				Action: listRules,
			},
			{
				Name: "explain", Usage: "say which rules a request meets, and why",
				ArgsUsage: "[KEY=VALUE[,KEY=VALUE...] ...]", Description: explainHelp,
				Flags: slices.Concat(requestFlags(ofRequest), explaining, reading), Action: explainRules,
			},
			{
				Name: "diff", Usage: "say what it does to put one rule file in the place of another",
				ArgsUsage: "OLD NEW", Description: diffHelp,
				Flags: slices.Concat([]cli.Flag{region}, reading), Action: diffRules,
			},
			{
				Name: "push", Usage: "publish rule files to Redis, for all nodes that follow it", ArgsUsage: "FILE...",
				Description: pushHelp, Flags: publishing, Action: pushRules,
			},
			{
				Name: "history", Usage: "list the versions of the rules in Redis", Description: historyHelp,
				Flags: looking, Action: rulesHistory,
			},
			{
				Name: "rollback", Usage: "publish an earlier version again, as a new one", ArgsUsage: "VERSION",
				Description: rollbackHelp, Flags: publishing, Action: rollbackRules,
			},
			{
				Name: "pull", Usage: "print or write the rule files in Redis", ArgsUsage: "[VERSION]",
				Description: pullHelp, Flags: slices.Concat(looking, []cli.Flag{
					plain.flag("out", "write the files to the directory `DIR`, which is made; none is replaced",
						new(string))}),
				Action: pullRules,
			},
			printCommand("schema", "print the JSON Schema of rule files, for editors",
				"edgelimit rules schema > rules.schema.json", string(rulefile.Schema())),
		},
	}
}

// readingOptions returns how rules are read by the flags, or by the configuration's settings where flags are not set.
func readingOptions(c *cli.Context, cfg *node.Config) (rulefile.Options, error) {
	err := override(c, readingSettings(cfg))
	stores := cfg.RuleStores()
	if c.String("config") == "" { // the nodes that they are for may know others
		stores.Known = nil
	}
	return rulefile.Options{
		Algorithm: cfg.DefaultAlgorithm, IPv6Prefix: cfg.IPv6Prefix, MergeDomains: cfg.MergeDomains,
		Compatibility: cfg.Compatibility, IgnoreDotFiles: cfg.IgnoreDotFiles, Stores: stores,
	}, err
}

// loadRules reads rule files by the flags, or by the configuration's settings where flags are not set, for a region, or
// for all if it is empty. It prints problems of the files; the error is their number.
func loadRules(c *cli.Context, cfg node.Config, region string, paths ...string) (*rules.Set, error) {
	opt, err := readingOptions(c, &cfg)
	if err != nil {
		return nil, err
	}
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
	var problems []problem
	var rest []error
	for _, e := range rulefile.Problems(err) {
		p, ok := errors.AsType[*rulefile.Error](e)
		if !ok {
			rest = append(rest, e)
			continue
		}
		problems = append(problems, problem{p.File, p.Line, p.Column, p.Reason, p.Source})
		if !c.Bool("json") {
			writeProblem(c.App.Writer, "", p)
		}
	}
	if c.Bool("json") && len(problems) > 0 {
		if err := printJSON(c, map[string]any{"valid": false, "problems": problems}); err != nil {
			return err
		}
	}
	if len(rest) > 0 {
		return errors.Join(rest...)
	}
	return cli.Exit(plural(len(problems), "problem"), 1)
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
		_, err = fmt.Fprintf(c.App.Writer, "valid: %d rules\n%s", len(in.set.Rules()), warningText(warnings))
	}
	count := len(slices.DeleteFunc(warnings, func(w node.Warning) bool { return w.Hint }))
	if err == nil && c.Bool("strict") && count > 0 {
		return cli.Exit(fmt.Sprintf("warnings: %d", count), 1)
	}
	return err
}

func diffRules(c *cli.Context) error {
	if c.NArg() != 2 {
		return misuse(c.Command, "give two rule files or directories, the old and the new")
	}
	var sets [2]*rules.Set
	for i := range sets {
		var err error
		if sets[i], err = loadRules(c, node.DefaultConfig(), c.String("region"), c.Args().Get(i)); err != nil {
			return err
		}
	}
	changes := rules.Diff(sets[0], sets[1])
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
	counts := map[bool]string{false: "its counts are kept", true: "its counts start anew"}[ch.Counts == "anew"]
	if ch.Old == ch.New {
		return fmt.Sprintf("~ %s (%s)\n    %s, but for its name, metadata or lists", ch.Rule, counts, ch.New)
	}
	return fmt.Sprintf("~ %s (%s)\n    from %s\n    to   %s", ch.Rule, counts, ch.Old, ch.New)
}
