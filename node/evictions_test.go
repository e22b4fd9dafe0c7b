package node

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// However fast keys go, the log hears of it once a minute, and of all of them.
func TestEvictionAlarm(t *testing.T) {
	log := &logbook{}
	a := evictionAlarm{log: log.logger(), budget: 64 << 20}
	for _, step := range []struct {
		after   time.Duration
		evicted uint64 // in all
		denied  uint64 // of those, over their limit
		warns   string // of so many keys
	}{
		{0, 0, 0, ""},
		{time.Second, 5000, 0, ""},
		{2 * time.Second, 5003, 3, "3"},
		{3 * time.Second, 5010, 10, ""},
		{61 * time.Second, 5020, 20, ""},
		{62 * time.Second, 5020, 20, "17"},
		{10 * time.Minute, 9000, 20, ""},
		{11 * time.Minute, 9001, 21, "1"},
	} {
		before := log.String()
		a.look(counters.Stats{Evicted: step.evicted, EvictedDenied: step.denied}, at(0).Add(step.after))
		said := strings.TrimPrefix(log.String(), before)
		switch {
		case step.warns == "" && said != "":
			t.Errorf("at %v it says %q", step.after, said)
		case step.warns != "" && (!strings.Contains(said, "level=WARN") || !strings.Contains(said, " keys="+step.warns+" memory=64MiB")):
			t.Errorf("at %v it says %q, want a warning of %s keys", step.after, said, step.warns)
		}
	}
}

// More keys over their limit than the memory holds: some have to go, and that shows.
func TestEvictionsShow(t *testing.T) {
	t.Parallel()
	log := &logbook{}
	cfg := quiet("domain: test\ndescriptors: [{key: client, rate_limit: {unit: day, requests_per_unit: 1}}]")
	cfg.Memory, cfg.Health, cfg.Logger = counters.MinMemory, "127.0.0.1:0", log.logger()
	n := launch(t, cfg).ready(t)
	const evicted = "edgelimit_evicted_keys_total standing="
	_, first := scrape(t, n.Addr("health"))
	if first["edgelimit_memory_limit_bytes"] != counters.MinMemory || first[evicted+"denied"] != 0 || first[evicted+"other"] != 0 {
		t.Errorf("at first: %v", first)
	}
	for i := 0; n.table.Stats().EvictedDenied < 10; i++ {
		if i == 1000 {
			t.Fatalf("nothing of what is over its limit goes: %+v", n.table.Stats())
		}
		for k := range 1000 {
			takeSome(t, n.Node, "test/client", strconv.Itoa(1000*i+k), 2)
		}
	}
	eventually(t, patience, "a warning", func() bool { return log.line("level=WARN", "keys over their limit", "memory=4MiB") })
	_, last := scrape(t, n.Addr("health"))
	if used := last["edgelimit_memory_bytes"]; used <= first["edgelimit_memory_bytes"] || used > counters.MinMemory {
		t.Errorf("%v of %d bytes are used, %v when it was empty", used, counters.MinMemory, first["edgelimit_memory_bytes"])
	}
	stats := n.table.Stats()
	want := fmt.Sprint(stats.EvictedDenied, stats.Evicted-stats.EvictedDenied)
	if got := fmt.Sprint(uint64(last[evicted+"denied"]), uint64(last[evicted+"other"])); got != want {
		t.Errorf("evicted, denied and other: %s, want %s", got, want)
	}
}
