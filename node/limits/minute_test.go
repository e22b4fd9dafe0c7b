package limits

import (
	"testing"
	"time"
)

func TestOncePerMinute(t *testing.T) {
	var m OncePerMinute
	now := time.Unix(1000, 0)
	for i, tt := range []struct {
		after time.Duration
		due   bool
	}{{0, true}, {0, false}, {59 * time.Second, false}, {time.Minute, true}, {time.Minute + 1, false}} {
		if m.Due(now.Add(tt.after)) != tt.due {
			t.Errorf("%d: after %v", i, tt.after)
		}
	}
}
