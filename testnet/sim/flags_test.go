package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
)

func TestFlags(t *testing.T) {
	if o := DefaultOptions(); len(o.Flags()) > 0 {
		t.Errorf("the default options need %q", o.Flags())
	}
	o := DefaultOptions()
	o.Pattern, o.Keys, o.Method, o.Interval = Flash, 3, counters.LeakyQueue, 50*time.Millisecond
	o.Partitions = []Partition{{A: 1, Until: time.Second}, {A: 2, B: 1, OneWay: true, Until: time.Minute}}
	o.StoreFaults = []StoreFault{{Kind: StoreFlush, From: time.Second, Until: time.Second}, {Kind: StoreStale, Region: 2, Until: time.Minute}}
	want := []string{"--interval", "50ms", "--algorithm", "leaky_queue", "--pattern", "flash", "--keys", "3",
		"--partition", "1/*@0s-1s", "--partition", "2>1@0s-1m0s",
		"--redis-fault", "flush@1s", "--redis-fault", "stale/2@0s-1m0s"}
	if got := o.Flags(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
