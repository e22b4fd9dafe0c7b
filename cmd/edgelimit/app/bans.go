package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node/bans"
	"github.com/edgelimit/edgelimit/node/client"
	"github.com/edgelimit/edgelimit/node/text"
)

const (
	bansListHelp = `
Asks the admin listener of a node, which only its own machine reaches, unless it asks for certificates. One node knows
the bans of all. An address is shown where it may be kept in clear, as of rules with export: address and of prefixes;
else the keyed hash of whom the rule counts, by which bans remove --key ends the ban.

All of them:      edgelimit bans list
Of one rule:      edgelimit bans list login
For a program:    edgelimit bans list --json

Exit status: 0 listed, 2 no answer.`

	bansAddHelp = `
Denies an identity everything under a rule until the end of the ban, on all nodes within the gossip interval; one node
is asked. The rule need not have a ban of its own. Of a rule that counts addresses, a prefix can be banned: everybody in
it, but for the addresses in the rule's lists. A prefix wider than /8, or /24 in IPv6, wants --force.

An identity:    edgelimit bans add login joe --for 1h --reason "ticket 42"
A prefix:       edgelimit bans add per_ip 192.0.2.0/24 --for 24h
By descriptor:  edgelimit bans add --for 1h \
                  --descriptor path=/login,remote_address=192.0.2.1

Exit status: 0 banned, 2 not.`

	bansRemoveHelp = `
Ends bans on all nodes: those that a rule began, and those of bans add. The other nodes follow within the gossip
interval, partitioned nodes when they are back. Counts stay: a client over its limit stays denied until its window has
passed, and a request before that begins the rule's own ban anew. The ban of a prefix ends by that prefix.

An identity:    edgelimit bans remove login 192.0.2.1
A prefix:       edgelimit bans remove per_ip 192.0.2.0/24
From the list:  edgelimit bans remove login --key 5f2d1c0b9a887766
By descriptor:  edgelimit bans remove --descriptor login=joe

Exit status: 0 lifted, or not banned as far as the node knows; 2 no answer.`
)

const ofBan group = "The ban"

func bansCommand() *cli.Command {
	admin := adminFlags()
	who := []cli.Flag{
		ofBan.flag("descriptor", "`KEY=VALUE[,KEY=VALUE...]` in place of rule and identity (repeatable)",
			new(repeated)),
		ofBan.flag("domain", "`NAME` of the domain of the descriptors (default: that of the rules, if they have only "+
			"one)", new(string)),
		ofBan.flag("key", "`HASH` of whom the rule counts, as bans list shows it, in place of the identity",
			new(string)),
	}
	return &cli.Command{
		Name: "bans", Usage: "list bans, begin and end them, on all nodes",
		Subcommands: []*cli.Command{
			{Name: "list", Usage: "list the bans in force", ArgsUsage: "[RULE]", Description: bansListHelp,
				Flags: admin, Action: listBans},
			{Name: "add", Usage: "ban an identity, or the addresses of a prefix", ArgsUsage: "[RULE IDENTITY]",
				Description: bansAddHelp, Flags: slices.Concat(who, []cli.Flag{
					ofBan.flag("for", "how long the ban lasts, as 10m or 24h", new(time.Duration)),
					ofBan.flag("reason", "`TEXT` that lists show, 200 bytes at most; it travels to all nodes in clear",
						new(string)),
					ofBan.flag("force", "ban a prefix however wide it is", new(bool)),
				}, admin), Action: addBan},
			{Name: "remove", Usage: "end the bans of an identity or a prefix", ArgsUsage: "[RULE IDENTITY]",
				Description: bansRemoveHelp, Flags: slices.Concat(who, admin), Action: removeBans},
		},
	}
}

// banRequest returns whom the arguments and flags name.
func banRequest(c *cli.Context) (req client.BanRequest, err error) {
	req = client.BanRequest{Domain: c.String("domain"), Key: c.String("key"), Rule: c.Args().Get(0),
		Identity: c.Args().Get(1)}
	for _, text := range *c.Generic("descriptor").(*repeated) {
		d, err := descriptorOf(c, text)
		if err != nil {
			return req, err
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	switch {
	case c.NArg() > 2:
		return req, misuse(c.Command, "want RULE and IDENTITY, got %q as well", c.Args().Get(2))
	case len(req.Descriptors) > 0 && (c.NArg() > 0 || req.Key != ""):
		return req, misuse(c.Command, "--descriptor stands in place of rule, identity and key")
	case len(req.Descriptors) == 0 && c.NArg() == 0:
		return req, misuse(c.Command, "say whom: RULE and IDENTITY, or --descriptor")
	case req.Key != "" && c.NArg() != 1:
		return req, misuse(c.Command, "--key stands in place of the identity, after a rule")
	}
	return req, nil
}

func listBans(c *cli.Context) error {
	if c.NArg() > 1 {
		return misuse(c.Command, "want one RULE, got %q as well", c.Args().Get(1))
	}
	all, err := askAdmin(c, func(admin *client.Client, ctx context.Context) ([]bans.Ban, error) {
		all := []bans.Ban{}
		return all, admin.ListBans(ctx, c.Args().First(), func(b bans.Ban) error {
			all = append(all, b)
			return nil
		})
	})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, map[string]any{"bans": all})
	}
	return printBans(c.App.Writer, all, time.Now())
}

// printBans prints a table that fits 80 columns: what is too long is cut, and --json has it.
func printBans(out io.Writer, all []bans.Ban, now time.Time) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(out, "nobody is banned, as far as this node knows")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RULE\tBANNED\tENDS IN\tBY\tREASON")
	for _, b := range all {
		by, reason := "rule", "the limit"
		if b.Manual {
			by, reason = b.By, b.Reason
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", cut(out, b.Rule, 18),
			cut(out, cmp.Or(b.Address, "#"+b.Key), 24),
			text.Roughly(b.Ends.Sub(now)), cut(out, by, 9), cut(out, reason, 13))
	}
	return w.Flush()
}

// cut shortens text of a node to a number of columns, about, on a terminal. What reads a pipe gets the whole.
func cut(out io.Writer, s string, width int) string {
	s = text.Clean(s)
	if utf8.RuneCountInString(s) <= width || !isTerminal(out) {
		return cmp.Or(s, "-")
	}
	return string([]rune(s)[:width-1]) + "…"
}

func addBan(c *cli.Context) error {
	req, err := banRequest(c)
	if err != nil {
		return err
	}
	req.For, req.Reason, req.Force = c.Duration("for"), c.String("reason"), c.Bool("force")
	if req.For < time.Millisecond {
		return misuse(c.Command, "say how long the ban lasts, as --for 1h")
	}
	req.For = req.For.Truncate(time.Millisecond)
	if from := sshClient(); from.IsValid() && !req.Force {
		if p, err := netip.ParsePrefix(req.Identity); err == nil && p.Contains(from) {
			return fmt.Errorf("%v holds %v, from which you are logged in: ban it with --force if that is meant", p,
				from)
		}
	}
	done, err := askAdmin(c, func(admin *client.Client, ctx context.Context) (client.AddedBans, error) {
		return admin.AddBan(ctx, req)
	})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return json.NewEncoder(c.App.Writer).Encode(done)
	}
	for _, b := range done.Bans {
		fmt.Fprintf(c.App.Writer, "%s: %s is banned until %s%s\n", text.Clean(b.Rule), cmp.Or(b.Address, "#"+b.Key),
			b.Ends.UTC().Format(timeFormat), followers[b.Scope])
	}
	for _, w := range done.Warnings {
		fmt.Fprintf(c.App.Writer, "warning: %s\n", text.Clean(w))
	}
	_, err = fmt.Fprintf(c.App.Writer, "all nodes follow within %v\n", text.Duration(done.Interval))
	return err
}

// sshClient returns the address from which this session came over SSH, if it did.
func sshClient() netip.Addr {
	text, _, _ := strings.Cut(os.Getenv("SSH_CONNECTION"), " ")
	addr, _ := netip.ParseAddr(text)
	return addr.Unmap()
}

func removeBans(c *cli.Context) error {
	req, err := banRequest(c)
	if err != nil {
		return err
	}
	done, err := askAdmin(c, func(admin *client.Client, ctx context.Context) (client.RemovedBans, error) {
		return admin.RemoveBans(ctx, req)
	})
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = printJSON(c, done)
	} else {
		printRemoved(c.App.Writer, done)
	}
	if still := stillBanned(done); err == nil && still != "" {
		return cli.Exit(still, 1)
	}
	return err
}

// stillBanned says which bans of prefixes go on denying, and how to remove them; nothing if there are none.
func stillBanned(done client.RemovedBans) string {
	var all []string
	for _, r := range done.Rules {
		for _, prefix := range r.Around {
			all = append(all, fmt.Sprintf("it is banned by %s: remove that: edgelimit bans remove %s %[1]s",
				text.Clean(prefix), text.Clean(r.Rule)))
		}
	}
	return strings.Join(all, "\n")
}

// askAdmin asks the node at --url.
func askAdmin[T any](c *cli.Context, ask func(*client.Client, context.Context) (T, error)) (answer T, err error) {
	admin, err := newClient(c)
	if err != nil {
		return answer, err
	}
	answer, err = ask(admin, c.Context)
	return answer, noAdmin(c, err)
}

// noAdmin says more about a node that does not answer.
func noAdmin(c *cli.Context, err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return fmt.Errorf("no answer at %s (is a node running here, and is that its serve --admin, which --from-env "+
			"leaves closed?): %w", c.String("url"), op)
	}
	return err
}

// followers are the nodes that follow, by the scope of a rule.
var followers = map[string]string{
	"region": "; scope region: the nodes of this region alone",
	"node":   "; scope node: this node alone, ask each of them",
}

func printRemoved(out io.Writer, done client.RemovedBans) {
	for _, r := range done.Rules {
		what := "this node knew of no ban"
		if r.Banned > 0 {
			what = fmt.Sprintf("lifted, of %v that were left", text.Duration(r.Banned))
		}
		what += textIf(r.RetryAfter > 0, "; still over its limit: a request within %v is denied, and may ban it again",
			text.Duration(r.RetryAfter))
		fmt.Fprintf(out, "%s: %s%s\n", text.Clean(r.Rule), text.Clean(what), followers[r.Scope])
	}
	if done.Lifted == 0 && stillBanned(done) == "" {
		fmt.Fprintf(out, "not banned as far as this node knows; a ban that other nodes know is lifted within %v\n",
			text.Duration(done.Interval))
	}
	if done.Lifted == 0 {
		return
	}
	fmt.Fprintf(out, "lifted on %d of %d rules with bans; all nodes follow within %v\n", done.Lifted, len(done.Rules),
		text.Duration(done.Interval))
}
