package judge

import (
	"bytes"
	"iter"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/record"
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
	r, err := judgeAll(h, yielding(entries))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Recorded checks the entries as Check does.
func Recorded(t testing.TB, h record.Header, entries []record.Entry) (*Report, error) {
	t.Helper()
	var out bytes.Buffer
	w, err := record.NewWriter(&out, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := w.Write(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := record.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
