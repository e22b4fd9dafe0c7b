package respapi

import (
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/limits"
)

var noon = time.Unix(1_700_000_000, 0)

func mustGet(t *testing.T, l *limits.Keeper[shape], s shape, now time.Time) *counters.Limit {
	t.Helper()
	limit, err := l.Get(s, now)
	if err != nil {
		t.Fatal(err)
	}
	return limit
}

func TestLimitsOfAShape(t *testing.T) {
	l := newLimits(nil)
	limit := mustGet(t, l, shape{15, 30, 60}, noon)
	want := counters.Meter{Rule: "%cl.throttle/15/30/60", Algorithm: counters.TokenBucket, Window: time.Minute, Sub: time.Minute}
	if limit.Meter() != want || limit.Max() != 16 || limit.Refill() != 30 {
		t.Errorf("%+v, %d, %d", limit.Meter(), limit.Max(), limit.Refill())
	}
	if mustGet(t, l, shape{15, 30, 60}, noon.Add(time.Hour)) != limit {
		t.Error("the same shape is another limit")
	}
	for _, other := range []shape{{16, 30, 60}, {15, 31, 60}, {15, 30, 61}} {
		if mustGet(t, l, other, noon).Meter() == limit.Meter() {
			t.Errorf("%v shares the meter", other)
		}
	}
}

// Who makes more than the door keeps is told how many there may be, and what makes them different.
func TestLimitsAreCapped(t *testing.T) {
	l := newLimits(nil)
	for i := range int64(MaxLimits) {
		mustGet(t, l, shape{0, i + 1, 1}, noon)
	}
	_, err := l.Get(shape{1, 1, 1}, noon)
	if err == nil || !strings.Contains(explained(err), "1024 different limits are in use") || !strings.Contains(explained(err), "max_burst") {
		t.Errorf("one more: %v", err)
	}
	mustGet(t, l, shape{1, 1, 1}, noon.Add(20*time.Second))
}
