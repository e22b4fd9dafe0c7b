package judge

import (
	"bytes"
	"iter"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/record"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// yielding gives the entries as a reader does.
func yielding(entries []record.Entry) iter.Seq2[record.Entry, error] {
	return func(yield func(record.Entry, error) bool) {
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Judged checks the entries, without the detour through a record.
func Judged(t testing.TB, h record.Header, entries []record.Entry) *Report {
	t.Helper()
	r, err := Judge(h, yielding(entries))
	testkit.Must(t, err)
	return r
}

// Recorded checks the entries as Check does.
func Recorded(t testing.TB, h record.Header, entries []record.Entry) (*Report, error) {
	t.Helper()
	var out bytes.Buffer
	w, err := record.NewWriter(&out, h)
	testkit.Must(t, err)
	for _, e := range entries {
		testkit.Must(t, w.Write(e))
	}
	testkit.Must(t, w.Close())
	r, err := record.NewReader(&out)
	testkit.Must(t, err)
	return Check(r)
}

// Invariants counts the violations by what they broke.
func Invariants(r *Report) map[Invariant]int {
	out := make(map[Invariant]int)
	for _, v := range r.Violations {
		out[v.Invariant] += v.Times
	}
	return out
}

func Text(t testing.TB, r *Report) string {
	t.Helper()
	var b strings.Builder
	testkit.Must(t, r.WriteText(&b))
	return b.String()
}
