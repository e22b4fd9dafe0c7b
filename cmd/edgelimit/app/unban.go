package app

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/client"
)

const unbanHelp = `
Asks the admin listener of a node, which only its own machine reaches. The other nodes follow within the gossip
interval, partitioned nodes when they are back. Only bans are lifted, counts stay: a client over its limit stays denied
until its window has passed, and a request before that begins the ban anew.

By rule:         edgelimit unban --rule login --identity 192.0.2.1
By descriptors:  edgelimit unban path=/login,remote_address=192.0.2.1

Exit status: 0 lifted, or not banned as far as the node knows; 2 no answer.`

func unbanCommand() *cli.Command {
	return &cli.Command{
		Name:        "unban",
		Usage:       "lift a client's ban, on all nodes",
		ArgsUsage:   "[KEY=VALUE[,KEY=VALUE...] ...]",
		Description: unbanHelp,
		Flags: slices.Concat(requestFlags("Whose ban"),
			nodeFlags("admin listener", "http://"+node.DefaultAdmin, "ADMIN_URL", 5*time.Second),
			[]cli.Flag{plain.flag("json", "print the node's answer as JSON", new(bool))}),
		Action: unban,
	}
}

func unban(c *cli.Context) error {
	req, ok, err := requestOf(c)
	if err != nil {
		return err
	}
	if !ok {
		return misuse(c.Command, "say whose ban to lift: --rule and --identity, or descriptors")
	}
	node, err := newClient(c)
	if err != nil {
		return err
	}
	done, err := node.Unban(c.Context, req)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return fmt.Errorf("no answer at %s (is a node running here, and is that its serve --admin?): %w",
			c.String("url"), op)
	} else if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c, done)
	}
	printUnbanned(c.App.Writer, done)
	return nil
}

// followers are the nodes that follow, by the scope of a rule.
var followers = map[string]string{
	"region": "; scope region: the nodes of this region alone",
	"node":   "; scope node: this node alone, ask each of them",
}

func printUnbanned(out io.Writer, done client.Unbanned) {
	for _, r := range done.Rules {
		what := "this node knew of no ban"
		if r.Banned > 0 {
			what = fmt.Sprintf("lifted, of %v that were left", r.Banned)
		}
		if r.RetryAfter > 0 {
			what += fmt.Sprintf("; still over its limit: a request within %v is denied, and bans it again",
				r.RetryAfter)
		}
		fmt.Fprintf(out, "%s: %s%s\n", r.Rule, what, followers[r.Scope])
	}
	if done.Lifted == 0 {
		fmt.Fprintf(out, "not banned as far as this node knows; a ban that other nodes know is lifted within %v\n",
			done.Interval)
		return
	}
	fmt.Fprintf(out, "lifted on %d of %d rules with a ban; all nodes follow within %v\n", done.Lifted, len(done.Rules),
		done.Interval)
}
