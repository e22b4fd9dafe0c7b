package rowtable_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters/internal/rowtable"
)

func logLimit(maximum uint64) *rowtable.Limit {
	return rowtable.NewLimit(rowtable.Meter{ID: 0x9e3779b97f4a7c15, Sub: int64(time.Second), N: 10,
		Algorithm: rowtable.SlidingLog}, maximum)
}

// A log admits a request if and only if less than its limit came in the window before, however many came before that:
// the numbers of its lines begin anew.
func TestLogIsExact(t *testing.T) {
	const maximum, requests = 7, 1_200_000
	table, l := rowtable.New(tableSize, 1), logLimit(maximum)
	window := l.Sub * int64(l.N)
	var last [maximum]int64 // times of the last requests that were admitted
	oldest, admitted := 0, 0
	for i := range requests {
		now := start + int64(i)*int64(time.Second)
		want := last[oldest]+window <= now
		d := table.Take(l, 1, 1, now)
		if d.Allowed != want || !want && d.RetryAfter() != last[oldest]+window-now {
			t.Fatalf("request %d: %+v, want %v", i, d, want)
		}
		if want {
			last[oldest] = now
			oldest = (oldest + 1) % maximum
			admitted++
		}
		if i%100_000 == 0 {
			table.Drain(nil, now)
			table.Expire(now)
		}
	}
	if admitted < requests*maximum/10 {
		t.Errorf("%d were admitted", admitted)
	}
}

// The entries of a log share lines, and go when they have left the window or their key has gone.
func TestLinesOfALog(t *testing.T) {
	table, l := rowtable.New(16*tableSize, 1), logLimit(1000)
	for i := range int64(500) {
		table.Take(l, 1, 1, start+i)
	}
	if n := table.Lines(); n != 1+500/5 {
		t.Errorf("%d lines, want one of five entries each, and the head", n)
	}
	for i := range int64(10) { // the first ones leave as more come
		table.Take(l, 1, 1, start+9*l.Sub+i)
	}
	table.Take(l, 1, 1, start+10*l.Sub+250)
	if n := table.Lines(); n != 1+50+3 {
		t.Errorf("%d lines after half of the entries have left", n)
	}
	for range 2 { // the head, and then its lines
		table.Expire(start + 30*l.Sub)
	}
	if n := table.Lines(); n != 0 {
		t.Errorf("%d lines are left", n)
	}
}

// A table full of logs evicts some with their entries, and goes on admitting no more of a key than its limit.
func TestFullTableOfLogs(t *testing.T) {
	table, l := rowtable.New(tableSize, 1), logLimit(20)
	const busy = uint64(1 << 63)
	admitted := 0
	for i := range uint64(100_000) {
		now := start + int64(i)
		if !table.Take(l, i/4*0x9e3779b97f4a7c15, 1, now).Allowed {
			t.Fatalf("request %d was denied", i)
		}
		if i%100 == 0 && table.Take(l, busy, 1, now).Allowed {
			admitted++
		}
	}
	if admitted != 20 {
		t.Errorf("%d requests of a key that stays were admitted", admitted)
	}
	if n := table.Lines(); n < 10_000 || n > 15_000 {
		t.Errorf("%d lines", n)
	}
}

// A request that finds no room for its line counts as of the latest time that the line of the one before has room for.
func TestLogWithoutRoomForALine(t *testing.T) {
	const maximum = 5000 // entries of as many take more than a shard
	l := rowtable.NewLimit(rowtable.Meter{ID: spread, Sub: 24 * int64(time.Hour), N: 10,
		Algorithm: rowtable.SlidingLog}, maximum)
	table := rowtable.New(tableSize, 1)
	for i := range int64(maximum - 1) {
		table.Take(l, 1, 1, start+i)
	}
	later := start + int64(100*time.Hour)
	if !table.Take(l, 1, 1, later).Allowed {
		t.Error("denied")
	}
	if n := table.View(l, 1, start+1<<48+10*l.Sub-1); n == 0 {
		t.Error("the request is forgotten before its time")
	}
}

// Requests under a log allocate nothing.
func TestLogAllocatesNothing(t *testing.T) {
	table, l := rowtable.New(tableSize, 1), logLimit(20)
	now := int64(start)
	if n := testing.AllocsPerRun(1000, func() {
		now += int64(time.Millisecond)
		table.Take(l, 42, 1, now)
	}); n != 0 {
		t.Errorf("%.1f allocations", n)
	}
}

// BenchmarkLog asks a log of a thousand entries: for one that has room again, and for one that has not.
func BenchmarkLog(b *testing.B) {
	table, l := rowtable.New(16*tableSize, 1), logLimit(1000)
	now, every := int64(start), l.Sub*int64(l.N)/1000
	for range 1000 {
		now += every
		table.Take(l, 42, 1, now)
	}
	b.Run("admitted", func(b *testing.B) {
		for b.Loop() {
			now += every
			if !table.Take(l, 42, 1, now).Allowed {
				b.Fatal("denied")
			}
		}
	})
	b.Run("denied", func(b *testing.B) {
		for b.Loop() {
			if table.Take(l, 42, 1, now).Allowed {
				b.Fatal("admitted")
			}
		}
	})
}
