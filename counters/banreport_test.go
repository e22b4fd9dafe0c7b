package counters_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// A limit that counts offences bans with the report that leaves nothing of it: for as long as a ban lasts, on all
// tables, and not longer for what is reported meanwhile.
func TestReportsBanWhoHasNothingLeft(t *testing.T) {
	for _, a := range algorithms {
		if a == counters.LeakyQueue {
			continue // holds requests back, which are not charged here
		}
		l := with(t, banning(t, "r", a), func(c *counters.LimitConfig) { c.BanSpent = true })
		table, peer := small(1), small(2)
		offence := func(after time.Duration) {
			table.Report([]counters.Charge{{Limit: l, Key: 1, Cost: 1}}, start+int64(after))
		}
		for range 2 {
			offence(0)
			if d := table.Take(l, 1, 0, start); !d.Allowed || d.Banned {
				t.Fatalf("%v: before the third: %+v", a, d)
			}
		}
		offence(0)
		offence(time.Second) // an answer that was under way
		wantBan(t, table, l, 1, start, start+int64(30*time.Second))
		peer.Know([]*counters.Limit{l})
		peer.Merge(table.DrainDirty(start).Slots, start)
		if d := peer.Take(l, 1, 0, start); d.Allowed || !d.Banned {
			t.Errorf("%v: at a peer: %+v", a, d)
		}
		if d := table.Take(l, 2, 0, start); !d.Allowed {
			t.Errorf("%v: another key: %+v", a, d)
		}
	}
}

// In shadow mode nobody is banned, nor by reports under a limit that bans whom it denies.
func TestReportsThatBanNobody(t *testing.T) {
	plain := banning(t, "plain", counters.SlidingWindow)
	spent := with(t, banning(t, "spent", counters.SlidingWindow), func(c *counters.LimitConfig) { c.BanSpent = true })
	for _, ch := range []counters.Charge{{Limit: plain, Key: 1, Cost: 9},
		{Limit: spent, Key: 1, Cost: 9, Mode: counters.Shadow}} {
		table := small(1)
		table.Report([]counters.Charge{ch}, start)
		if d := table.Take(ch.Limit, 1, 0, start); d.Allowed || d.Banned {
			t.Errorf("%s: %+v", ch.Limit.Meter().Rule, d)
		}
	}
}
