package rules

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// manyWildcards are rules with so many wildcards, each of two literals that stand anywhere.
func manyWildcards(t testing.TB, n int) *Set {
	t.Helper()
	var b strings.Builder
	b.WriteString("domain: edge\ndescriptors:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {key: path, value: '*/a%04d*/b%04d*', rate_limit: {unit: hour, requests_per_unit: 5}}\n",
			i, i)
	}
	set := mustParse(t, b.String())
	return set
}

// worst are requests of 64 KiB that fit none of these wildcards: what the APIs accept, and what costs most to find
// that out.
func worst() map[string]*Request {
	split := func(text string, n int) *Request {
		req := &Request{Domain: "edge"}
		for i := range n {
			at := len(text) / n
			req.Descriptors = append(req.Descriptors, []Entry{{Key: "path", Value: text[i*at : (i+1)*at]}})
		}
		return req
	}
	var reversed strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&reversed, "/b%04d", i)
	}
	for i := range 3000 {
		fmt.Fprintf(&reversed, "/a%04d", i)
	}
	return map[string]*Request{
		"32 of 2 KiB":      split(strings.Repeat("x", 64<<10), 32),
		"32 of first bits": split(strings.Repeat("/a", 32<<10), 32),
		"32 of near hits":  split(strings.Repeat("/a000", 64<<10/5), 32),
		"one of 64 KiB":    split(strings.Repeat("/a0001", 64<<10/6), 1),
		"all, in reverse":  split(reversed.String(), 1),
	}
}

// The worst request that there may be costs a node a few milliseconds, against 3,000 wildcards. The test allows for
// ten times that, on a machine that is busy; one literal after the other took 90 to 190.
func TestTheWorstRequestAgainstManyWildcards(t *testing.T) {
	set := manyWildcards(t, 3000)
	for name, req := range worst() {
		var room [MaxDescriptors]Match
		least := time.Hour
		for range 5 {
			began := time.Now()
			found, err := set.Match(req, Secret{}, room[:0])
			if err != nil || found[0].Rule != nil {
				t.Fatal(found, err)
			}
			least = min(least, time.Since(began))
		}
		if least > 50*time.Millisecond && !testkit.Enabled { // which slows what only computes tenfold
			t.Errorf("%s: %v", name, least)
		}
	}
}

func BenchmarkTheWorstRequest(b *testing.B) {
	set := manyWildcards(b, 3000)
	for name, req := range worst() {
		b.Run(name, func(b *testing.B) {
			var room [MaxDescriptors]Match
			b.ReportAllocs()
			for b.Loop() {
				_, _ = set.Match(req, Secret{}, room[:0])
			}
		})
	}
}

// With and without the search for all literals at once, random values meet the same one of random wildcards.
func TestTheSearchForLiterals(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	word := func(most int) string {
		b := make([]byte, r.IntN(most+1))
		for i := range b {
			b[i] = "ab/"[r.IntN(3)]
		}
		return string(b)
	}
	met := 0
	for range 300 {
		var w wildcards
		var patterns []string
		for i := range 20 {
			wild := word(3)
			for range 1 + r.IntN(4) {
				wild += "*" + word(3)
			}
			if r.IntN(10) == 0 {
				wild += "*" + strings.Repeat("ab", 20) + "*"
			}
			w.add(wild, i, &Node{Entry: Entry{Value: wild}})
			patterns = append(patterns, wild)
		}
		for range 20 {
			value := word(60)
			if r.IntN(3) == 0 {
				value += strings.Repeat("ab", 30) + word(10)
			}
			var want *Node
			for i, wild := range patterns {
				if matchWildcards(wild, value) {
					want = &Node{Entry: Entry{Value: patterns[i]}}
					break
				}
			}
			inside := w.inside
			for _, w.inside = range []int{0, inside * longSearch} {
				switch got := w.find(value); {
				case (got == nil) != (want == nil) || got != nil && got.Entry != want.Entry:
					t.Fatalf("%q meets %+v, want %+v, of %q", value, got, want, patterns)
				case got != nil && w.inside > 0:
					met++
				}
			}
			w.inside = inside
		}
	}
	if met < 1000 {
		t.Errorf("only %d values met a pattern", met)
	}
}
