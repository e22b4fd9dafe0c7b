package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/node/rulestore"
)

const (
	pushHelp = `
The files are read as nodes read them; files that are not valid are refused before anything is written. The new version
is in force on all nodes within a second, no count is reset unless the changes say so, and no request fails.

One Redis:   edgelimit rules push rules.yaml --redis redis://10.0.0.5
Of regions:  edgelimit rules push rules.yaml --message 'half for trials' \
               --redis redis://us:6379 --redis redis://eu:6379

Of several Redis the first decides which of two pushes wins; the others follow it. If one cannot be reached, run the
same push again: that completes it.

Exit status: 0 in force, or nothing to do, 1 not valid, another push was first, or not everywhere, 2 not published.`

	rollbackHelp = `
The text of the earlier version is published as a new version: nodes never go back.

edgelimit rules rollback 41 --redis redis://10.0.0.5

Exit status: as of edgelimit rules push.`
)

func author(c *cli.Context) string { return cmp.Or(c.String("author"), os.Getenv("USER"), "unknown") }

func pushRules(c *cli.Context) error {
	if !c.Args().Present() {
		return misuse(c.Command, "say which files to push")
	}
	s, err := openStores(c)
	if err != nil {
		return err
	}
	defer s.close()
	files, err := s.reading.ReadFiles(c.Args().Slice()...)
	if err != nil {
		return reportProblems(c, err)
	}
	return s.publishRules(c, files, c.String("message"))
}

func rollbackRules(c *cli.Context) error {
	version, err := versionOf(c)
	if err != nil {
		return err
	} else if version == 0 {
		return misuse(c.Command, "say which version to go back to; edgelimit rules history lists them")
	}
	s, err := openStores(c)
	if err != nil {
		return err
	}
	defer s.close()
	d, err := s.all[0].Fetch(c.Context, rulestore.Rules, version)
	if err != nil {
		return err
	}
	files, err := rulestore.DecodeFiles(d.Text)
	if err != nil {
		return err
	}
	return s.publishRules(c, files, cmp.Or(c.String("message"), fmt.Sprintf("rollback to version %d", version)))
}

// published is what became of a version, as JSON.
type published struct {
	Version   uint64              `json:"version"`
	Published bool                `json:"published"` // false: it was in force before, or --dry-run
	DryRun    bool                `json:"dry_run,omitempty"`
	Changes   []rules.Change      `json:"changes,omitempty"`
	Warnings  []node.Warning      `json:"warnings,omitempty"`
	Redis     []rulestore.Reached `json:"redis,omitempty"`
}

// publishRules publishes rule files, unless they are in force already, and prints what that changes.
func (s *ruleStores) publishRules(c *cli.Context, files []rulefile.File, message string) error {
	set, err := s.reading.ParseFiles(files...)
	if err != nil {
		return reportProblems(c, err)
	}
	text, err := rulestore.EncodeFiles(files)
	if err != nil {
		return err
	}
	e, err := s.all.Edit(c.Context, rulestore.Rules, c.Uint64("above"))
	if err != nil {
		return fmt.Errorf("nothing was published: %w", err)
	}
	before := e.Before
	if e.Damaged != nil {
		before = rulestore.Document{}
	}
	if want := c.Uint64("if-version"); c.IsSet("if-version") && want != before.Version.Version {
		return cli.Exit(fmt.Sprintf("nothing was published: %s is in force, not version %d", versionText(before),
			want), 1)
	}
	d, err := rulestore.NewDocument(text, author(c), message, time.Now())
	if err != nil {
		return fmt.Errorf("nothing was published: %w", err)
	}
	result := published{DryRun: c.Bool("dry-run"), Warnings: s.warnings(c.Context, before, set, files)}
	result.Changes = rules.Diff(s.rulesOf(before), set)
	if e.InForce(c.Context, d) {
		d = before
	} else {
		e.Number(&d)
		result.Published = !result.DryRun
	}
	result.Version = d.Version.Version
	if result.Published {
		if err := e.Publish(c.Context, d); err != nil {
			return s.notPublished(c, err)
		}
	}
	var failed error
	if !result.DryRun {
		result.Redis, failed = s.spread(c.Context, rulestore.Rules, d)
	}
	return cmp.Or(result.print(c, before), failed)
}

// notPublished explains why the first server did not take a version.
func (s *ruleStores) notPublished(c *cli.Context, err error) error {
	if _, is := errors.AsType[*rulestore.ConflictError](err); is {
		winner := "another push"
		if d, err := s.all[0].Current(c.Context, rulestore.Rules); err == nil {
			winner = versionText(d)
		}
		return cli.Exit("nothing was published: "+winner+" came first; look at it with edgelimit rules pull, and push "+
			"again", 1)
	}
	if c.Context.Err() != nil {
		return fmt.Errorf("interrupted: it may be in force or not; run the same push again, which completes it (%w)",
			err)
	}
	return fmt.Errorf("%w; if it may have arrived, run the same push again, which completes it", err)
}

func versionText(d rulestore.Document) string {
	if d.Version.Version == 0 {
		return "no version"
	}
	return d.Version.String()
}

// spread has the other servers follow the first. The error names those that do not.
func (s *ruleStores) spread(ctx context.Context, k rulestore.Kind, d rulestore.Document) ([]rulestore.Reached, error) {
	all := s.all.Spread(ctx, k, d)
	var names []string
	for _, r := range all {
		if r.Error != "" {
			names = append(names, r.Redis)
		}
	}
	if len(names) == 0 {
		return all, nil
	}
	return all, cli.Exit(fmt.Sprintf("version %d is not everywhere: run the same command again, which completes it, "+
		"when you can reach %s", d.Version.Version, strings.Join(names, " and ")), 1)
}

// rulesOf returns the rules of a version, none if they cannot be read by these flags.
func (s *ruleStores) rulesOf(d rulestore.Document) *rules.Set {
	if d.Version.Version > 0 {
		if files, err := rulestore.DecodeFiles(d.Text); err == nil {
			if set, err := s.reading.ParseFiles(files...); err == nil {
				return set
			}
		}
	}
	return rules.NewSet()
}

// warnings returns those about the rules, and about overrides that have no effect with them.
func (s *ruleStores) warnings(ctx context.Context, before rulestore.Document, set *rules.Set,
	files []rulefile.File) []node.Warning {
	s.cfg.Rules = []string{s.all[0].String()}
	found := s.cfg.Warnings(set)
	if before.Version.Version > 0 && len(s.rulesOf(before).Rules()) == 0 {
		found = append(found, node.Warning{Text: "the rules in force are none, or cannot be read by these flags: the " +
			"changes are shown as if there were none"})
	}
	limits, _, err := s.limits(ctx)
	if err != nil {
		return append(found, node.Warning{Text: "the overrides cannot be read: " + err.Error()})
	}
	overridden, err := s.reading.ParseFiles(files...) // a set that is not shown
	if err != nil {
		return found
	}
	var all []rules.Override
	for i := range limits {
		if o, _, err := limits[i].Override(); err == nil {
			all = append(all, o)
		}
	}
	const shown = 10
	refused := overridden.Override(all)
	for _, err := range refused[:min(shown, len(refused))] {
		found = append(found, node.Warning{Text: err.Error()})
	}
	if more := len(refused) - shown; more > 0 {
		found = append(found, node.Warning{Text: fmt.Sprintf("%d more overrides have no effect", more)})
	}
	return found
}

// print prints what became of the version.
func (p *published) print(c *cli.Context, before rulestore.Document) error {
	if c.Bool("json") {
		return printJSON(c, p)
	}
	out := c.App.Writer
	for _, ch := range p.Changes {
		fmt.Fprintln(out, changeText(ch))
	}
	if len(p.Changes) == 0 {
		fmt.Fprintln(out, "no rule changes")
	}
	fmt.Fprint(out, warningText(p.Warnings))
	switch {
	case p.DryRun:
		fmt.Fprintf(out, "nothing was published (--dry-run); in force: %s\n", versionText(before))
	case p.Published:
		fmt.Fprintf(out, "version %d is published; before: %s\n", p.Version, versionText(before))
	default:
		fmt.Fprintf(out, "in force already: %s\n", versionText(before))
	}
	return printReached(c, p.Redis)
}

func printReached(c *cli.Context, all []rulestore.Reached) error {
	for _, r := range all {
		if len(all) > 1 || r.Error != "" {
			fmt.Fprintf(c.App.Writer, "  %s: %s\n", r.Redis, cmp.Or(r.Error, "has it"))
		}
	}
	return nil
}
