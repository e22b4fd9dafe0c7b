package rulefile_test

import (
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

func TestPerClient(t *testing.T) {
	for _, window := range []time.Duration{time.Second, 90 * time.Second, 24 * time.Hour} {
		set := rulefile.PerClient(7, window)
		r, err := set.Find("per_client", "")
		if err != nil || r.Limit.Max() != 7 || r.Limit.Lasts() != window || r.AddressBits() == 0 {
			t.Errorf("%v: %+v, %v", window, r, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("less than nothing is a limit")
		}
	}()
	rulefile.PerClient(-1, time.Second)
}
