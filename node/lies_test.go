package node

import (
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
)

// However fast lies come, the log hears of them once a minute, in whose name they were told, and what to do.
func TestLieAlarm(t *testing.T) {
	log := &logbook{}
	a := lieAlarm{log: log.logger()}
	liar := gossip.MemberStatus{Member: gossip.Member{NodeID: "edge-7", Region: "eu", Incarnation: 3}}
	members := []gossip.MemberStatus{{Member: gossip.Member{NodeID: "edge-6", Region: "eu"}}, liar}
	for _, step := range []struct {
		after  time.Duration
		slots  uint64
		origin counters.Origin
		warns  string
	}{
		{0, 0, 0, ""},
		{time.Second, 5, liar.Member.Origin(), "slots=5 in_the_name_of=eu/edge-7"},
		{2 * time.Second, 900, liar.Member.Origin(), ""},
		{61 * time.Second, 1000, 4711, "slots=995 in_the_name_of=unknown"},
		{10 * time.Minute, 1000, 4711, ""},
	} {
		before := log.String()
		a.look(counters.Stats{Implausible: step.slots}, step.origin, members, at(0).Add(step.after))
		said := strings.TrimPrefix(log.String(), before)
		switch {
		case step.warns == "" && said != "":
			t.Errorf("at %v it says %q", step.after, said)
		case step.warns != "" && (!strings.Contains(said, "level=WARN") || !strings.Contains(said, step.warns) || !strings.Contains(said, "rotate the gossip key")):
			t.Errorf("at %v it says %q, want a warning with %q", step.after, said, step.warns)
		}
	}
}

// Tables of two nodes strew keys by seeds of their own.
func TestNodesHaveSeedsOfTheirOwn(t *testing.T) {
	if a, b := newSeed(), newSeed(); a == b || a == 0 || b == 0 {
		t.Errorf("seeds %d and %d", a, b)
	}
}
