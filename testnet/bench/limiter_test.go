package main

import "testing"

// Everybody in this process admits what is within the limit and denies what is over it, or the comparison means nothing.
func TestContestantsLimit(t *testing.T) {
	one := newStream(hot())
	for _, c := range contestants("") {
		for _, s := range []*setting{settingHot, settingDenied} {
			l, err := c.opened(t.Context(), s, newStream(upTo(0, 16)))
			if err != nil {
				t.Fatal(err)
			}
			tr := turn{contestant: &c, load: &workload{setting: s}}
			if err := tr.plausible(slice{asked: one.len(), admitted: l.ask(one, 0, one.len())}); err != nil {
				t.Errorf("limited %v: %v", s.limited, err)
			}
			if c, ok := l.(closer); ok {
				if err := c.close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// Contestants and workloads are told apart by their names, and the goals' names are there.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range contestants("127.0.0.1:1") {
		if seen[c.name] {
			t.Errorf("two contestants are called %q", c.name)
		}
		seen[c.name] = true
	}
	for _, name := range []string{nameEngine, nameGiven, nameXTime, nameGoLimiter, nameBare, nameTwoBuckets} {
		if !seen[name] {
			t.Errorf("no contestant is called %q", name)
		}
	}
}
