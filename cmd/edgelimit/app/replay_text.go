package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/edgelimit/edgelimit/node/replay"
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
	if r.Interrupted {
		fmt.Fprintln(out, "interrupted: this is what had been read")
	}
	if r.Late > 0 {
		fmt.Fprintf(out, "late: %d requests came too far behind their time to be sorted (%d lines), and were asked "+
			"at the time of the one before\n", r.Late, replay.Window)
	}
	for _, f := range r.Failed {
		fmt.Fprintf(out, "broken off: %s\n", printable(f))
	}
	if r.Malformed == 0 {
		return
	}
	fmt.Fprintf(out, "left out: %d of %d lines; the first:\n", r.Malformed, r.Lines)
	for _, p := range r.Shown {
		text := ""
		if p.Text != "" {
			text = ": " + strconv.Quote(p.Text)
		}
		fmt.Fprintf(out, "  %s:%d: %s%s\n", printable(p.Log), p.Line, p.Reason, text)
	}
}

func printOutcome(out io.Writer, o *replay.Outcome, r *replay.Report, changed string) {
	fmt.Fprintf(out, "would be denied: %s\n", ofRequests(o.Denied, r.Requests))
	if o.Unmatched > 0 {
		fmt.Fprintf(out, "met no rule: %s\n", ofRequests(o.Unmatched, r.Requests))
	}
	if o.Forgotten > 0 {
		fmt.Fprintf(out, "forgotten: %d keys had no room in memory any more, and were counted anew\n", o.Forgotten)
	}
	if r.Compared == nil {
		changed = ""
	}
	for i := range o.Rules {
		printRule(out, &o.Rules[i], changed)
	}
}

// printRule prints the result of a rule. changed is the word for what only it denies, empty without a comparison.
func printRule(out io.Writer, p *replay.RuleReport, changed string) {
	fmt.Fprintf(out, "\n%s", printable(p.Name))
	if p.Name != p.Rule {
		fmt.Fprintf(out, " (%s)", printable(p.Rule))
	}
	if p.Unlimited {
		fmt.Fprintln(out, ": unlimited")
	} else {
		fmt.Fprintf(out, ": %d in %s, %s\n", p.Limit, span(p.WindowSeconds), p.Algorithm)
	}
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
	if p.Uncounted > 0 {
		fmt.Fprintf(out, "  %d of the requests were of further identities, which are not tracked any more\n",
			p.Uncounted)
	}
	if changed != "" {
		fmt.Fprintf(out, "  %s: %s, of %s\n", changed, plural(p.Changed, "request"),
			plural(p.IdentitiesChanged, "identity"))
	}
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
	fmt.Fprint(w, "    REQUESTS\tDENIED\tMOST\t")
	if changed != "" {
		fmt.Fprintf(w, "%s\t", strings.ToUpper(changed))
	}
	fmt.Fprintln(w, "IDENTITY")
	for _, id := range p.Worst {
		peak := "-"
		if p.Peaks != nil {
			peak = strconv.FormatUint(id.Peak, 10)
		}
		fmt.Fprintf(w, "    %d\t%d\t%s\t", id.Requests, id.Denied, peak)
		if changed != "" {
			fmt.Fprintf(w, "%d\t", id.Changed)
		}
		name := printable(id.Name)
		if id.Name == "" {
			name = "(all together)"
		}
		fmt.Fprintln(w, name)
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

func plural[N int | uint64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if stem, ok := strings.CutSuffix(what, "y"); ok {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// span returns a duration without the zeros at its end.
func span(seconds float64) string {
	s := time.Duration(seconds * float64(time.Second)).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// printable quotes text of a log that could control the terminal.
func printable(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	return strconv.Quote(s)
}

// writeSafeJSON writes an object as encoding/json does, and escapes all that could control the terminal. JSON has such
// characters in strings only.
func writeSafeJSON(out io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	safe := make([]byte, 0, len(b)+1)
	for _, r := range string(b) {
		if unicode.IsPrint(r) {
			safe = utf8.AppendRune(safe, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			safe = fmt.Appendf(safe, `\u%04x`, unit)
		}
	}
	_, err = out.Write(append(safe, '\n'))
	return err
}
