package telemetry

import (
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// However fast keys go, the log hears of it once a minute, and of all of them.
func TestEvictionAlarm(t *testing.T) {
	log := &testkit.Log{}
	a := tableAlarms{log: log.Logger(), memory: "64MiB"}
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
		a.look(counters.Stats{Evicted: step.evicted, EvictedDenied: step.denied}, nil,
			at(0).Add(step.after))
		said := strings.TrimPrefix(log.String(), before)
		switch {
		case step.warns == "" && said != "":
			t.Errorf("at %v it says %q", step.after, said)
		case step.warns != "" && (!strings.Contains(said, "level=WARN") ||
			!strings.Contains(said, " keys="+step.warns+" memory=64MiB")):
			t.Errorf("at %v it says %q, want a warning of %s keys", step.after, said, step.warns)
		}
	}
}

// However fast implausible counts come, the log says so once a minute, who sent them in whose name, and what to do.
func TestPeerAlarm(t *testing.T) {
	log := &testkit.Log{}
	a := tableAlarms{log: log.Logger()}
	other := gossip.MemberStatus{Member: gossip.Member{NodeID: "edge-7", Region: "eu", Incarnation: 3}}
	members := []gossip.MemberStatus{{Member: gossip.Member{NodeID: "edge-6", Region: "eu"}}, other}
	for _, step := range []struct {
		after  time.Duration
		slots  uint64
		origin counters.Origin
		warns  string
	}{
		{0, 0, 0, ""},
		{time.Second, 5, other.Member.Origin(), "slots=5 rule=r sender=eu/edge-6 in_the_name_of=eu/edge-7"},
		{2 * time.Second, 900, other.Member.Origin(), ""},
		{61 * time.Second, 1000, 4711, "slots=995 rule=r sender=eu/edge-6 in_the_name_of=unknown"},
		{10 * time.Minute, 1000, 4711, ""},
	} {
		before := log.String()
		last := counters.Implausible{Rule: "r", Origin: step.origin, Sender: members[0].Member.Origin()}
		a.look(counters.Stats{Implausible: step.slots, LastImplausible: last}, members, at(0).Add(step.after))
		said := strings.TrimPrefix(log.String(), before)
		switch {
		case step.warns == "" && said != "":
			t.Errorf("at %v it says %q", step.after, said)
		case step.warns != "" && (!strings.Contains(said, "level=WARN") || !strings.Contains(said, step.warns) ||
			!strings.Contains(said, "rotate the gossip key")):
			t.Errorf("at %v it says %q, want a warning with %q", step.after, said, step.warns)
		}
	}
}

// So it does of origins that are made up or had to go, and of peers' keys.
func TestPeerAlarmOfWhatIsTooMuch(t *testing.T) {
	log := &testkit.Log{}
	a := tableAlarms{log: log.Logger()}
	peer := gossip.MemberStatus{Member: gossip.Member{NodeID: "edge-7", Region: "eu", Incarnation: 3}}
	for i, step := range []struct {
		after time.Duration
		stats counters.Stats
		warns string
	}{
		{0, counters.Stats{OriginsRefused: 12}, "slots=12"},
		{time.Second, counters.Stats{OriginsRefused: 13, OriginsRetired: 14}, "origins=14"},
		{2 * time.Second, counters.Stats{OriginsRefused: 13, OriginsRetired: 15, EvictedRemote: 16}, "keys=16"},
		{3 * time.Second, counters.Stats{OriginsRefused: 13, OriginsRetired: 15, EvictedRemote: 16, DeniedByOne: 1000},
			"keys=1000 peer=eu/edge-7"},
	} {
		before := log.String()
		step.stats.LastDenier = peer.Member.Origin()
		a.look(step.stats, []gossip.MemberStatus{peer}, at(0).Add(step.after))
		said := strings.TrimPrefix(log.String(), before)
		if strings.Count(said, "level=WARN") != 1 || !strings.Contains(said, step.warns) {
			t.Errorf("step %d: it says %q, want one warning with %q", i, said, step.warns)
		}
	}
}
