package app

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node/client"
	"github.com/edgelimit/edgelimit/node/status"
	"github.com/edgelimit/edgelimit/node/text"
)

const statusHelp = `
One node answers about all, at its admin listener: what is wrong and what to do, the regions, the rules.

bound   guaranteed: all nodes together went no further over the limit
over    an estimate of that from below: what the counts show that have arrived
keeps   about which part of the limits a region admits while it is cut off

This machine's:  edgelimit status
Another one's:   edgelimit status --url https://10.0.1.7:7949 \
                   --ca-file ca.pem --cert-file me.pem --key-file me.key

Exit status: 0 healthy, 1 degraded or not ready, 2 no answer.`

func statusCommand() *cli.Command {
	return &cli.Command{Name: "status", Usage: "ask a node how it and its cluster are", Description: statusHelp,
		Flags: adminFlags(), Action: func(c *cli.Context) error {
			s, err := askStatus(c)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				err = json.NewEncoder(c.App.Writer).Encode(s)
			} else {
				err = printStatus(c.App.Writer, &s)
			}
			return exitStatus(err, s.Health == status.Healthy)
		}}
}

func membersCommand() *cli.Command {
	return &cli.Command{Name: "members", Usage: "list the nodes of the cluster as one of them sees them",
		Description: "\nExample:  edgelimit members --json\n\nExit status: 0 listed, 2 no answer.", Flags: adminFlags(),
		Action: func(c *cli.Context) error {
			s, err := askStatus(c)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				members := []status.Member{}
				for _, r := range s.Regions {
					members = append(members, r.Members...)
				}
				return json.NewEncoder(c.App.Writer).Encode(map[string]any{"members": members})
			}
			return printMembers(c.App.Writer, &s)
		}}
}

func askStatus(c *cli.Context) (status.Status, error) { return askAdmin(c, (*client.Client).Status) }

// timeFormat is how commands print times, all in UTC as the node's findings and the dashboard do.
const timeFormat = "2006-01-02 15:04:05 UTC"

// printStatus prints a status in 80 columns but for the sentences.
func printStatus(out io.Writer, s *status.Status) error {
	fmt.Fprintf(out, "%s: node %s of region %s, %s, up %s\n", strings.ToUpper(text.Clean(s.Health)), text.Clean(s.Node),
		text.Clean(s.Region), text.Clean(s.Version), text.Roughly(time.Duration(s.Uptime)*time.Millisecond))
	for _, f := range s.Summary {
		fmt.Fprintf(out, "%s: %s\n  do: %s\n", text.Clean(f.Level), text.Clean(f.Text), text.Clean(f.Do))
	}
	const maxWarnings = 5
	for _, warning := range s.Warnings[:min(maxWarnings, len(s.Warnings))] {
		fmt.Fprintf(out, "info: %s\n", text.Clean(warning))
	}
	if more := len(s.Warnings) - maxWarnings; more > 0 {
		fmt.Fprintf(out, "info: %s more: see --json\n", plural(more, "warning"))
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REGION\tNODES\tREACHABLE\tSTALENESS\tKEEPS\tRULES")
	for i := range s.Regions {
		r := &s.Regions[i]
		reachable, staleness, rules := 0, int64(0), "same"
		for _, m := range r.Members {
			if m.Reachable {
				reachable++
			}
			if staleness = max(staleness, m.Staleness); !m.SameRules {
				rules = "other"
			}
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\n", cut(out, r.Name, 24), len(r.Members), reachable, age(staleness),
			percent(r.Share), rules)
	}
	_ = w.Flush()
	fmt.Fprintln(out)
	fmt.Fprintln(w, "RULE\tLIMIT\tALLOWED/s\tDENIED/s\tBOUND\tOVER")
	for i := range s.Limits {
		l := &s.Limits[i]
		limit := "unlimited"
		if l.Algorithm != "" {
			limit = fmt.Sprintf("%d in %s", l.Limit, text.Duration(time.Duration(l.Window)*time.Millisecond))
		}
		allowed, denied := lastMinute(l.Recent)
		fmt.Fprintf(w, "%s\t%s\t%.4g\t%.4g\t%s\t%s\n", cut(out, l.Rule, 30), limit, allowed, denied, percent(&l.Bound),
			percent(l.Over))
	}
	_ = w.Flush()
	redis := status.NoStore
	if s.Redis != nil {
		redis = fmt.Sprintf("%s, %d pending", text.Clean(s.Redis.State), s.Redis.Pending)
	}
	_, err := fmt.Fprintf(out, "\nrules %s of %s; redis: %s; memory: %d keys, %s of %s; bans: %d\n",
		text.Clean(s.Rules.Fingerprint), s.Rules.Since.UTC().Format(timeFormat), redis, s.Memory.Keys,
		megabytes(s.Memory.Bytes), megabytes(s.Memory.Budget), s.Bans)
	return err
}

func megabytes(n int) string { return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20) }

// percent is a part of one; a dash for none.
func percent(part *float64) string {
	if part == nil {
		return "-"
	}
	return fmt.Sprintf("%.3g%%", 100**part)
}

// age is a number of milliseconds as a duration.
func age(ms int64) string { return text.Roughly(time.Duration(ms) * time.Millisecond) }

// lastMinute returns the decisions a second of the last minute.
func lastMinute(r *status.Recent) (allowed, denied float64) {
	if r == nil || r.Step <= 0 {
		return 0, 0
	}
	mean := func(steps []uint64) float64 {
		sum := uint64(0)
		steps = steps[max(0, len(steps)-int(max(1, 60_000/r.Step))):]
		for _, n := range steps {
			sum += n
		}
		return float64(sum) / max(1, float64(int64(len(steps))*r.Step)/1000)
	}
	return mean(r.Allowed), mean(r.Denied)
}

func printMembers(out io.Writer, s *status.Status) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tREGION\tSTATE\tSTALENESS\tRTT\tCLOCK\tRULES\tADDRESS")
	for _, r := range s.Regions {
		for _, m := range r.Members {
			state := "reachable"
			switch {
			case m.Self:
				state = "self"
			case m.Down:
				state = "down since " + m.Since.UTC().Format("15:04:05 UTC")
			case !m.Reachable:
				state = "cut off since " + m.Since.UTC().Format("15:04:05 UTC")
			case !m.SameKey:
				state = "other key"
			}
			clock, rtt, rules := "-", "-", m.Rules[:min(8, len(m.Rules))]
			if m.ClockAhead != nil {
				clock = fmt.Sprintf("%+.0f ms", *m.ClockAhead)
			}
			if m.RTT > 0 {
				rtt = fmt.Sprintf("%.3g ms", m.RTT)
			}
			if !m.SameRules {
				rules += " (other)"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", cut(out, m.Node, 20), cut(out, m.Region, 16), state,
				age(m.Staleness), rtt, clock, cut(out, rules, 16), cut(out, m.Addr, 24))
		}
	}
	return w.Flush()
}
