package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node/client"
	"github.com/edgelimit/edgelimit/node/status"
	"github.com/edgelimit/edgelimit/node/text"
)

const topHelp = `
Whom a node denied most in the last five to ten minutes: by the keyed hash that the rule counts, or in clear where the
rule has expose: identity, or the node is alone and only its own machine reaches its operators' listener. On a terminal
the table is drawn anew until you interrupt it.

All rules:      edgelimit top
One of them:    edgelimit top login -n 5
Once:           edgelimit top --once
For a program:  edgelimit top --json

Exit status: 0 listed, 2 no answer.`

func topCommand() *cli.Command {
	return &cli.Command{Name: "top", Usage: "list whom a node denies most", ArgsUsage: "[RULE]", Description: topHelp,
		Flags: append([]cli.Flag{
			plain.flag("n", "how many", new(20)),
			plain.flag("once", "print the table once", new(bool)),
			plain.flag("every", "how often to draw the table anew", new(2*time.Second)),
		}, adminFlags()...), Action: top}
}

func top(c *cli.Context) error {
	if c.NArg() > 1 {
		return misuse(c.Command, "want one RULE, got %q as well", c.Args().Get(1))
	}
	admin, err := newClient(c)
	if err != nil {
		return err
	}
	live := !c.Bool("once") && !c.Bool("json") && isTerminal(c.App.Writer)
	for {
		denied, err := admin.Top(c.Context, c.Args().First(), c.Int("n"))
		if err != nil {
			return noAdmin(c, err)
		}
		switch {
		case c.Bool("json"):
			return json.NewEncoder(c.App.Writer).Encode(map[string]any{"top": denied})
		case !live:
			return printTop(c.App.Writer, c.App.Writer, denied)
		}
		var page strings.Builder
		if err := printTop(&page, c.App.Writer, denied); err != nil {
			return err
		}
		const clear = "\x1b[H\x1b[2J"
		_, _ = io.WriteString(raw(c.App.Writer), clear)
		fmt.Fprintf(c.App.Writer, "denied most, at %s (every %v, Ctrl-C ends)\n%s",
			time.Now().Format("15:04:05"), text.Duration(c.Duration("every")), page.String())
		select {
		case <-time.After(max(c.Duration("every"), 100*time.Millisecond)):
		case <-c.Context.Done():
			return nil // interrupted, as it is meant to be
		}
	}
}

// raw returns what a command's output goes to, without what keeps it from steering a terminal.
func raw(out io.Writer) io.Writer {
	if w, is := out.(*text.Writer); is {
		return w.Raw()
	}
	return out
}

func isTerminal(out io.Writer) bool {
	f, ok := raw(out).(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// printTop prints whom a node denied, to what terminal shows.
func printTop(out, terminal io.Writer, denied []status.Denied) error {
	if len(denied) == 0 {
		_, err := fmt.Fprintln(out, "this node denied nobody in the last minutes")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RULE\tDENIALS\tWHO")
	hashed := false
	for _, d := range denied {
		hashed = hashed || d.Identity == ""
		count := fmt.Sprint(d.Denials)
		if d.Error > 0 {
			count = fmt.Sprintf("%d to %d", d.Denials-min(d.Error, d.Denials), d.Denials)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", cut(terminal, d.Rule, 32), count,
			cut(terminal, cmp.Or(d.Identity, "#"+d.Key), 32))
	}
	err := w.Flush()
	if err == nil && hashed {
		_, err = fmt.Fprintln(out, "# is a keyed hash of who it is: to see that, write expose: identity into the rule")
	}
	return err
}

const inspectHelp = `
What one node knows of an identity under a rule and its parents: what each node admitted, how much is used, and what the
next request would get. It charges nothing.

Example:  edgelimit inspect login 192.0.2.1

Exit status: 0 the next request is allowed, 1 it is denied, 2 no answer.`

func inspectCommand() *cli.Command {
	return &cli.Command{Name: "inspect", Usage: "ask a node what it knows of an identity", ArgsUsage: "RULE IDENTITY",
		Description: inspectHelp, Flags: adminFlags(), Action: func(c *cli.Context) error {
			if c.NArg() != 2 {
				return misuse(c.Command, "want RULE and IDENTITY")
			}
			in, err := askAdmin(c, func(admin *client.Client, ctx context.Context) (status.Inspection, error) {
				return admin.Inspect(ctx, c.Args().Get(0), c.Args().Get(1))
			})
			if err != nil {
				return err
			}
			if c.Bool("json") {
				err = json.NewEncoder(c.App.Writer).Encode(in)
			} else {
				err = printInspection(c.App.Writer, &in)
			}
			return exitStatus(err, in.Allows)
		}}
}

func printInspection(out io.Writer, in *status.Inspection) error {
	for i := range in.Layers {
		l := &in.Layers[i]
		next := "the next request is allowed"
		switch {
		case !l.Allowed && l.RetryAfter < 0:
			next = "the next request is denied"
		case !l.Allowed:
			next = fmt.Sprintf("the next request is denied, for %v",
				text.Duration(time.Duration(l.RetryAfter)*time.Millisecond))
		}
		next += textIf(l.Banned, "; it is banned") + textIf(l.Listed != "", "; it is on the %s list",
			text.Clean(l.Listed)) +
			textIf(l.Degraded, "; the node cannot see the whole cluster") +
			textIf(l.Strict, "; a store decides: what nodes count is not what it counts")
		fmt.Fprintf(out, "%s #%s: %s\n  used %d of %d, %d left; bound %s; redis: %s\n", text.Clean(l.Rule),
			text.Clean(l.Key), next, l.Used, l.Limit, l.Remaining, percent(&l.Bound), text.Clean(l.Store))
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "  REGION\tNODE\tADMITTED\t")
		for _, n := range l.Counts {
			fmt.Fprintf(w, "  %s\t%s\t%d\t%s\n", cut(out, n.Region, 24), cut(out, n.Node, 24), n.Count,
				textIf(n.Self, "(itself)")+textIf(n.CutOff, "(cut off: what arrived before)")+
					textIf(n.Sum, "(others, as owners added them up)"))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if len(in.Layers) == 0 {
		fmt.Fprintln(out, "no rule counts it")
	}
	return nil
}

const eventsHelp = `
What happened at a node and to its peers: the lines of its log of level info and above, the latest 1024. Of events of
one kind the first 8 of a minute are kept; the others are counted.

What there is:  edgelimit events
And goes on:    edgelimit events --follow
Lately:         edgelimit events --since 15m

Exit status: 0 listed, 2 no answer.`

func eventsCommand() *cli.Command {
	return &cli.Command{Name: "events", Usage: "list what happened at a node and to its peers", Description: eventsHelp,
		Flags: append([]cli.Flag{
			plain.flag("follow", "print also what happens from now on, until interrupted", new(bool)),
			plain.flag("since", "only events since `WHEN`: so long before now, as in 15m, a time, as in "+
				"2026-01-02T15:04:05Z, or after an event's id", new(string)),
		}, adminFlags()...), Action: events}
}

// parseSince returns the id of an event, or a time: that so long before now, or the given one.
func parseSince(given string, now time.Time) (id uint64, at time.Time, err error) {
	if given == "" {
		return 0, at, nil
	}
	if id, err = strconv.ParseUint(given, 10, 63); err == nil {
		return id, at, nil
	}
	if d, err := time.ParseDuration(given); err == nil && d >= 0 {
		return 0, now.Add(-d), nil
	}
	if at, err = time.Parse(time.RFC3339, given); err != nil {
		err = fmt.Errorf("--since %.80q: want a duration as 15m, a time as 2026-01-02T15:04:05Z, or an event's id",
			given)
	}
	return 0, at, err
}

func events(c *cli.Context) error {
	since, from, err := parseSince(c.String("since"), time.Now())
	if err != nil {
		return misuse(c.Command, "%v", err)
	}
	show := func(e status.Event) error {
		if e.Time.Before(from) {
			return nil
		}
		if c.Bool("json") {
			return json.NewEncoder(c.App.Writer).Encode(e)
		}
		return printEvent(c.App.Writer, &e)
	}
	if c.Bool("follow") {
		base, h, err := target(c)
		if err != nil {
			return err
		}
		h.Timeout = 0
		err = client.New(strings.TrimSuffix(base.String(), "/"), h).FollowEvents(c.Context, since, show)
		if c.Context.Err() != nil {
			return nil // interrupted, as it is meant to be
		}
		return noAdmin(c, err)
	}
	all, err := askAdmin(c, func(admin *client.Client, ctx context.Context) ([]status.Event, error) {
		return admin.Events(ctx, since)
	})
	if err != nil {
		return err
	}
	for _, e := range all {
		if err := show(e); err != nil {
			return err
		}
	}
	return nil
}

func printEvent(out io.Writer, e *status.Event) error {
	line := fmt.Sprintf("%s %-5s %s", e.Time.UTC().Format(timeFormat), text.Clean(e.Level), text.Clean(e.Text))
	for _, name := range slices.Sorted(maps.Keys(e.Attrs)) {
		if value := e.Attrs[name]; value != "" {
			line += fmt.Sprintf(" %s=%s", text.Clean(name), printable(value))
		}
	}
	_, err := fmt.Fprintln(out, line+textIf(e.Repeated > 0, " (and %d more within the minute)", e.Repeated))
	return err
}

func configCommand() *cli.Command {
	return &cli.Command{Name: "config", Usage: "print the configuration of a running node, and what set it",
		Description: "\nSecrets are masked.\n\nWhat is not the default:  edgelimit config --changed\n\n" +
			"Exit status: 0 printed, 2 no answer.",
		Flags: append([]cli.Flag{plain.flag("changed", "leave out defaults", new(bool))}, adminFlags()...),
		Action: func(c *cli.Context) error {
			all, err := askAdmin(c, (*client.Client).Settings)
			if err != nil {
				return err
			}
			kept := []status.Setting{}
			for _, s := range all {
				if s.From != "default" || !c.Bool("changed") {
					kept = append(kept, s)
				}
			}
			if c.Bool("json") {
				return json.NewEncoder(c.App.Writer).Encode(map[string]any{"settings": kept})
			}
			w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "SETTING\tFROM\tVALUE")
			for _, s := range kept {
				fmt.Fprintf(w, "%s\t%s\t%s\n", text.Clean(s.Name), text.Clean(s.From), text.Clean(string(s.Value)))
			}
			return w.Flush()
		}}
}
