package counters_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// A panic in the midst of a decision leaves no shard locked: whoever recovers from it, as the APIs do, can go on
// asking about the same key.
func TestConcurrentAfterAPanic(t *testing.T) {
	for name, ask := range map[string]func(*counters.Table, *counters.Limit){
		"Take":    func(table *counters.Table, l *counters.Limit) { table.Take(l, 1, 1, start) },
		"TakeAll": func(table *counters.Table, l *counters.Limit) { table.TakeAll(layersOf(l), start, nil) },
		"Report":  func(table *counters.Table, l *counters.Limit) { table.Report(layersOf(l), start) },
		"View":    func(table *counters.Table, l *counters.Limit) { table.View(l, 1, start) },
	} {
		for _, ban := range []bool{false, true} {
			plain := penalized(t, limitNamed(t, "r", 10), ban, false, time.Minute)
			table := small(1)
			table.Take(plain, 1, 1, start)
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic", name)
					}
				}()
				ask(table, counters.Panicking(plain))
			}()
			done := make(chan counters.Decision, 1)
			go func() { done <- table.Take(plain, 1, 1, start) }()
			select {
			case d := <-done:
				if !d.Allowed || d.Remaining != 8 {
					t.Errorf("%s, ban %v: after the panic %+v", name, ban, d)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s, ban %v: a shard is locked for ever", name, ban)
			}
		}
	}
}

func layersOf(l *counters.Limit) []counters.Charge {
	return []counters.Charge{{Limit: l, Key: 1, Cost: 1}}
}
