package telemetry

import (
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// What differs is said once it has lasted, once, with the names; and when it is over.
func TestDifferenceAlarm(t *testing.T) {
	log := &testkit.Log{}
	a := newRulesAlarm(log.Logger())
	for _, step := range []struct {
		after time.Duration
		names []string
		want  string
	}{
		{0, nil, ""},
		{0, []string{"eu/a", "eu/b"}, ""},
		{5 * time.Second, []string{"eu/b"}, ""}, // a reload on its way
		{6 * time.Second, nil, ""},
		{10 * time.Second, []string{"eu/c"}, ""},
		{17 * time.Second, []string{"eu/c", "eu/d"}, ""},
		{18 * time.Second, []string{"eu/c", "eu/d"},
			`level=WARN msg="peers have other rules or overrides than this node: give all nodes the same rule files, ` +
				`default_algorithm and ipv6_prefix" peers=eu/c count=1 of=9`},
		{19 * time.Second, []string{"eu/c", "eu/d"}, ""},
		{25 * time.Second, []string{"eu/c", "eu/d"}, `peers="eu/c, eu/d" count=2 of=9`},
		{80 * time.Second, []string{"eu/d"}, ""},
		{81 * time.Second, nil, `level=INFO msg="all peers have the rules of this node again"`},
		{82 * time.Second, nil, ""},
	} {
		before := log.String()
		a.look(step.names, 9, at(0).Add(step.after))
		line := strings.TrimPrefix(log.String(), before)
		if (line == "") != (step.want == "") || !strings.Contains(line, step.want) || strings.Count(line, "\n") > 1 {
			t.Errorf("at %v it says %q, want %q", step.after, line, step.want)
		}
		if got := a.count.Load(); got != int64(len(step.names)) {
			t.Errorf("at %v it counts %d", step.after, got)
		}
	}
	if newIdentityAlarm(log.Logger()).look([]string{"us/x"}, 1, at(0)); !log.HasLine("level=ERROR",
		"another identity key", "peers=us/x count=1 of=1") {
		t.Errorf("another identity key has to wait:\n%s", log)
	}
}

func TestDiffering(t *testing.T) {
	members := []gossip.MemberStatus{seen("eu/a", 0), seen("eu/b", 0), seen("us/c", 0), seen("us/c", 0)}
	for i, f := range []uint64{7, 0, 8, 9} { // b is of a version that sends none, c runs twice
		members[i].Rules = f
	}
	if got := differing(members, 7, func(m *gossip.Member) uint64 { return m.Rules }); len(got) != 1 ||
		got[0] != "us/c" {
		t.Errorf("%v differ", got)
	}
}
