package app

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/edgelimit/edgelimit/node/replay"
	"github.com/edgelimit/edgelimit/node/text"
)

// printReplay prints a report.
func printReplay(out io.Writer, r *replay.Report) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "edgelimit replay: %d requests in %s, %s to %s UTC (%s)\n", r.Requests, plural(r.Logs, "log"),
		r.First.Format(time.DateTime), r.Last.Format(time.DateTime), span(r.Last.Sub(r.First).Seconds()))
	printProblems(&b, r)
	fmt.Fprintln(&b)
	if c := r.Compared; c != nil {
		fmt.Fprintf(&b, "newly denied: %s\n", ofRequests(c.NewlyDenied, r.Requests))
		fmt.Fprintf(&b, "no longer denied: %s\n", ofRequests(c.NoLongerDenied, r.Requests))
		fmt.Fprintf(&b, "denied by both: %s\n", ofRequests(c.BothDenied, r.Requests))
	}
	printOutcome(&b, &r.Outcome, r, "newly denied")
	if c := r.Compared; c != nil {
		fmt.Fprintln(&b, "\nThe old rules:")
		printOutcome(&b, &c.Old, r, "no longer denied")
	}
	_, err := out.Write(b.Bytes())
	return err
}

func printProblems(out io.Writer, r *replay.Report) {
	fmt.Fprint(out, textIf(r.Interrupted, "interrupted: this is what had been read\n"))
	fmt.Fprint(out, textIf(r.Late > 0, "late: %d requests came too far behind their time to be sorted (%d lines), "+
		"and were asked at the time of the one before\n", r.Late, replay.Window))
	for _, f := range r.Failed {
		fmt.Fprintf(out, "broken off: %s\n", printable(f))
	}
	fmt.Fprint(out, textIf(r.Malformed > 0, "left out: %d of %d lines; the first:\n", r.Malformed, r.Lines))
	for _, p := range r.Shown {
		fmt.Fprintf(out, "  %s:%d: %s%s\n", printable(p.Log), p.Line, p.Reason, textIf(p.Text != "", ": %q", p.Text))
	}
}

func printOutcome(out io.Writer, o *replay.Outcome, r *replay.Report, changed string) {
	fmt.Fprintf(out, "would be denied: %s\n", ofRequests(o.Denied, r.Requests))
	fmt.Fprint(out, textIf(o.Unmatched > 0, "met no rule: %s\n", ofRequests(o.Unmatched, r.Requests)))
	fmt.Fprint(out, textIf(o.Forgotten > 0, "forgotten: %d keys had no room in memory any more, and were counted "+
		"anew\n", o.Forgotten))
	if r.Compared == nil {
		changed = ""
	}
	for i := range o.Rules {
		printRule(out, &o.Rules[i], changed)
	}
}

// printRule prints the result of a rule. changed is the word for what only it denies, empty without a comparison.
func printRule(out io.Writer, p *replay.RuleReport, changed string) {
	limit := "unlimited"
	if !p.Unlimited {
		limit = fmt.Sprintf("%d in %s, %s", p.Limit, span(p.WindowSeconds), p.Algorithm)
	}
	fmt.Fprintf(out, "\n%s%s: %s\n", printable(p.Rule), textIf(p.Rule != p.Place, " (%s)", printable(p.Place)),
		limit)
	switch {
	case len(p.Unknown) > 0:
		fmt.Fprintf(out, "  not asked: no field is called %s; see --field and --descriptor\n",
			printable(strings.Join(p.Unknown, ", ")))
		return
	case p.Requests == 0:
		fmt.Fprintln(out, "  met by no request")
		return
	}
	fmt.Fprintf(out, "  requests %d, would be denied %s; identities %d, denied %d\n",
		p.Requests, share(p.Denied, p.Requests), p.Identities, p.IdentitiesDenied)
	fmt.Fprint(out, textIf(p.Uncounted > 0, "  %d of the requests were of further identities, which are not tracked "+
		"any more\n", p.Uncounted))
	fmt.Fprint(out, textIf(changed != "", "  %s: %s, of %s\n", changed, plural(p.Changed, "request"),
		plural(p.IdentitiesChanged, "identity")))
	if p.Peaks != nil {
		fmt.Fprintf(out, "  most in %s: median %d, 90 %% of them %d, 99 %% %d, 99.9 %% %d, all %d\n",
			span(p.PeakSeconds), p.Peaks.Median, p.Peaks.P90, p.Peaks.P99, p.Peaks.P999, p.Peaks.Max)
		fmt.Fprintf(out, "  suggested: %d in %s: what 99 %% never exceed (%d), and a quarter more; %s asked for more\n",
			p.Suggested.Limit, span(p.PeakSeconds), p.Suggested.Basis, plural(p.Suggested.Exceeding, "identity"))
	}
	printIdentities(out, p, changed)
}

func printIdentities(out io.Writer, p *replay.RuleReport, changed string) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "    REQUESTS\tDENIED\tMOST\t%sIDENTITY\n", textIf(changed != "", "%s\t", strings.ToUpper(changed)))
	for _, id := range p.Worst {
		peak := "-"
		if p.Peaks != nil {
			peak = strconv.FormatUint(id.Peak, 10)
		}
		fmt.Fprintf(w, "    %d\t%d\t%s\t%s%s\n", id.Requests, id.Denied, peak,
			textIf(changed != "", "%d\t", id.Changed), cmp.Or(printable(id.Name), "(all together)"))
	}
	if len(p.Worst) > 0 {
		_ = w.Flush() // into memory
	}
}

func ofRequests(n, all uint64) string {
	return share(n, all) + " of the requests"
}

func share(n, all uint64) string {
	return fmt.Sprintf("%d (%.2f %%)", n, 100*float64(n)/float64(max(all, 1)))
}

// span returns so many seconds as a duration.
func span(seconds float64) string {
	return text.Duration(time.Duration(seconds * float64(time.Second)))
}
