package replay

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

func TestMain(m *testing.M) { testkit.MainWithoutLeaks(m) }

// parsed are the rules of a file's text.
func parsed(t testing.TB, file string) *rules.Set {
	t.Helper()
	set, err := rulefile.Parse("test.yaml", []byte(file))
	testkit.Must(t, err)
	return set
}

// limited are rules of one limit for each address.
func limited(t testing.TB, limit string) *rules.Set {
	t.Helper()
	return parsed(t, "domain: web\ndescriptors:\n  - key: remote_address\n    rate_limit: {name: per_ip, "+limit+"}\n")
}

// options are small ones for the rules.
func options(set *rules.Set) Options {
	o := DefaultOptions()
	o.Rules, o.Memory = set, counters.MinMemory
	return o
}

// oneAMinute are options for a limit that everybody exceeds.
func oneAMinute(t testing.TB) Options {
	return options(limited(t, "unit: minute, requests_per_unit: 1"))
}

func logOf(name, text string) Log { return Log{name, strings.NewReader(text)} }

// replayed is the report on logs, which are named 1, 2 and so on.
func replayed(t testing.TB, o Options, logs ...string) *Report {
	t.Helper()
	var all []Log
	for i, text := range logs {
		all = append(all, logOf(fmt.Sprint(i+1), text))
	}
	r, err := Run(t.Context(), o, all, func(Progress) {})
	testkit.Must(t, err)
	return r
}

// line is a request so many seconds after noon.
func line(addr, path string, second float64) string {
	at := noon.Add(time.Duration(second * float64(time.Second)))
	return fmt.Sprintf("{\"ts\":%q,\"remote_addr\":%q,\"path\":%q}\n", at.Format(time.RFC3339Nano), addr, path)
}

// traffic is a log in combined format: clients that ask a lot and clients that hardly ask, over an hour, written when
// the request ended.
func traffic(lines int) string {
	rnd := rand.New(rand.NewPCG(3, 5))
	type entry struct {
		ended time.Time
		text  string
	}
	var all []entry
	for range lines {
		client := int(rnd.ExpFloat64() * 15)
		at := noon.Add(time.Duration(rnd.Int64N(int64(time.Hour)))).Truncate(time.Second)
		if client%7 == 3 { // it comes in bursts
			at = at.Truncate(15 * time.Minute).Add(time.Duration(rnd.Int64N(int64(time.Minute)))).Truncate(time.Second)
		}
		text := fmt.Sprintf("10.0.0.%d - - [%s] \"GET /%d HTTP/1.1\" 200 1 \"-\" \"x\"\n", client,
			at.Format("02/Jan/2006:15:04:05 -0700"), rnd.IntN(9))
		all = append(all, entry{at.Add(time.Duration(rnd.ExpFloat64() * float64(5*time.Second))), text})
	}
	slices.SortStableFunc(all, func(a, b entry) int { return a.ended.Compare(b.ended) })
	var b strings.Builder
	for _, e := range all {
		b.WriteString(e.text)
	}
	return b.String()
}

func compressed(t testing.TB, s string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, z.Close())
	return b.String()
}

// identityOf is what the report on a rule says of one.
func identityOf(t testing.TB, r *RuleReport, name string) Identity {
	t.Helper()
	for _, id := range r.Worst {
		if id.Name == name {
			return id
		}
	}
	t.Fatalf("%q is not among %v", name, r.Worst)
	return Identity{}
}

func started(t testing.TB, ctx context.Context, o Options, logs ...Log) *run {
	t.Helper()
	r, err := newRun(ctx, &o, logs, func(Progress) {})
	testkit.Must(t, err)
	return r
}
