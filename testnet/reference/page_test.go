package reference

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the run finds into the page")

// page has a section that this package writes.
const (
	page    = "../../node/rlsapi/MIGRATION.md"
	heading = "\n## What is different\n"
)

// checkPage holds that the page has the section that follows from what was found, or writes it.
func checkPage(t *testing.T, found *findings) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), heading)
	section, after, more := strings.Cut(rest, "\n## ")
	if !ok || !more {
		t.Fatalf("%s has no section %q with another behind it", page, strings.TrimSpace(heading))
	}
	want := "\n" + found.section()
	switch {
	case *update:
		if err := os.WriteFile(page, []byte(before+heading+want+"\n## "+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case withoutNumbers(section) != withoutNumbers(want):
		t.Errorf("%s is not what the run found; go test ./testnet/reference -update writes\n%s", page, want)
	}
}

// withoutNumbers is a text with one digit for each number: how often windows begin together depends on the time of day.
func withoutNumbers(text string) string {
	return regexp.MustCompile(`[0-9]+`).ReplaceAllString(text, "0")
}

// section is the text of the section.
func (f *findings) section() string {
	var b strings.Builder
	fmt.Fprintf(&b, "`edgelimit serve --from-env ratelimit`, or `compatibility: ratelimit` in the configuration, "+
		"answers as\nenvoyproxy/ratelimit does. `go test ./testnet/reference` asks both programs the same (theirs is "+
		"the one of\n%s) in %d settings, and writes this section:\n\n", referenceDate(), len(settings))
	b.WriteString("| exchanges | how many | equal decisions | equal in all fields | or as in later versions of it |\n")
	b.WriteString("|---|---|---|---|---|\n")
	f.usual.row(&b, "what most use ("+strings.Join(usualGroups, ", ")+"; neither `QUOTA_MODE` nor "+
		"`RESPONSE_DYNAMIC_METADATA`), by gRPC")
	f.scripted.row(&b, "all that is scripted, the rare and the malformed as well, by gRPC")
	f.json.row(&b, "the same at `/json`")
	f.statistics.row(&b, "counters sent by statsd behind them")
	fmt.Fprintf(&b, "| of %d random sessions, by gRPC | %d | all but differences below | | |\n\n", sessions,
		f.random.exchanges)
	b.WriteString("These are all the differences, and how many of the scripted exchanges and counters show each:\n\n")
	b.WriteString("| | envoyproxy/ratelimit | here | why | |\n|---|---|---|---|---|\n")
	for i, k := range differences {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %d |\n", k.name, k.theirs, k.ours, k.reason,
			f.scripted.known[i]+f.json.known[i]+f.statistics.known[i])
	}
	b.WriteString("\nWithout `compatibility`, these differ as well:\n\n")
	b.WriteString("| | envoyproxy/ratelimit | here |\n|---|---|---|\n")
	for _, c := range contrasts {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c.what, c.theirs, c.ours)
	}
	return b.String()
}

func (n *tally) row(b *strings.Builder, what string) {
	fmt.Fprintf(b, "| %s | %d | %s | %s | %s |\n", what, n.exchanges, share(n.sameDecision, n.exchanges),
		share(n.equal, n.exchanges), share(n.later, n.exchanges))
}

// share is a part of a total in percent, rounded down: 100 % means all.
func share(part, total int) string {
	if part == total {
		return "100 %"
	}
	return fmt.Sprintf("%d.%02d %%", part*100/total, part*10000/total%100)
}

// referenceDate is the day of the reference's version, which has no other name.
func referenceDate() string {
	_, rest, _ := strings.Cut(referenceVersion, "-0.")
	return fmt.Sprintf("%s-%s-%s", rest[:4], rest[4:6], rest[6:8])
}
