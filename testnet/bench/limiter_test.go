package main

import "testing"

// Every contestant in this process admits requests within the limit and denies those over it.
func TestContestantsLimit(t *testing.T) {
	one := newStream(hot())
	for _, c := range contestants("") {
		for _, s := range []*state{stateHot, stateDenied} {
			l, err := c.inState(s, newStream(upTo(0, 16)))
			if err != nil {
				t.Fatal(err)
			}
			tr := turn{contestant: &c, load: &workload{state: s}}
			if err := tr.plausible(slice{requests: one.len(), admitted: l.take(one, 0, one.len())}); err != nil {
				t.Errorf("limited %v: %v", s.limited, err)
			}
			if err := closeLimiter(l); err != nil {
				t.Error(err)
			}
		}
	}
}

// Contestants have different names, and those in the goals exist.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range contestants("127.0.0.1:1") {
		if seen[c.name] {
			t.Errorf("two contestants are named %q", c.name)
		}
		seen[c.name] = true
	}
	for _, name := range []string{nameEngine, nameGiven, nameXTime, nameGoLimiter, nameBare, nameTwoBuckets} {
		if !seen[name] {
			t.Errorf("no contestant is named %q", name)
		}
	}
}
