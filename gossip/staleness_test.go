package gossip

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

// A member that is known through others and was never heard, as when only some of the ways to it are cut, may admit a limit.
func TestAuditOfAMemberNeverHeard(t *testing.T) {
	w := limitOf100(t)
	r := NewReplica(1, DefaultInterval, counters.NewTable(counters.Config{Origin: 1}))
	start := int64(time.Hour)
	r.Join(2, start)
	if got := r.Audit(w, start+int64(time.Second))["edge/lab"]; got != 0 {
		t.Errorf("a member that has just come is in the bound with %v", got)
	}
	if got := r.Audit(w, start+int64(10*time.Second))["edge/lab"]; got != 100 {
		t.Errorf("a member that was never heard is in the bound with %v of 100", got)
	}
	r.Leave(2, true)
	if got := r.Audit(w, start+int64(20*time.Second))["edge/lab"]; got != 0 {
		t.Errorf("a member that left is in the bound with %v", got)
	}
}

func limitOf100(t *testing.T) map[string]*counters.Limit {
	limit, err := counters.NewLimit(counters.NewMeter("edge/lab", counters.SlidingWindow, time.Minute), 100)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*counters.Limit{"edge/lab": limit}
}
