package sim

import (
	"math"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/oracle"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// compliant holds that the oracle of any algorithm never counts more than 95 % of the limit of the clients from the
// first one on, and that they use nearly all of that.
func compliant(t *testing.T, o Options, first int) {
	t.Helper()
	limit, err := newLimit(&o)
	testkit.Must(t, err)
	oracle := oracle.NewModel(limit)
	largest, reached := keepsTo*float64(o.Limit), make(map[int]uint64)
	for _, a := range all(t, o) {
		if a.client < first {
			continue
		}
		key, at := counters.Key(a.client), 1_800_000_000*int64(time.Second)+a.after
		oracle.Charge(key, 1, at)
		view := oracle.View(key, at)
		if float64(view) > largest {
			t.Fatalf("%v: the oracle counts %d of client %d at %v, at most %v are fair", o.Method, view, a.client,
				time.Duration(a.after), largest)
		}
		reached[a.client] = max(reached[a.client], view)
	}
	if len(reached) != o.clients()-first {
		t.Errorf("%v: requests of %d clients, want %d", o.Method, len(reached), o.clients()-first)
	}
	for client, n := range reached {
		if bucket := o.Method >= counters.TokenBucket; float64(n) < math.Floor(largest)*0.8 && !bucket {
			t.Errorf("%v: client %d reaches %d of %v only", o.Method, client, n, largest)
		}
	}
}

// Clients beside the load keep to 95 % of a limit of any algorithm, small limits included, and change nothing of the
// load.
func TestBesideIsCompliant(t *testing.T) {
	for _, a := range Algorithms {
		for _, limit := range []uint64{2, 20, 333} {
			o := short(func(o *Options) { o.Method, o.Limit, o.Keys, o.Duration = a, limit, 2, 20*time.Second })
			alone := all(t, o)
			o.Compliant = 3
			compliant(t, o, o.Keys)
			i := 0
			for _, arrival := range all(t, o) {
				if arrival.client >= o.Keys {
					continue
				}
				if arrival != alone[i] {
					t.Fatalf("%v: arrival %d of the load is %+v, without clients beside it %+v", a, i, arrival,
						alone[i])
				}
				i++
			}
			if i != len(alone) {
				t.Errorf("%v: %d arrivals of the load, without clients beside it %d", a, i, len(alone))
			}
		}
	}
	o := short(func(o *Options) { o.Limit = 1 })
	alone := len(all(t, o))
	o.Compliant = 1
	if n := len(all(t, o)); n != alone {
		t.Errorf("95 %% of a limit of 1 is none, but %d more requests come", n-alone)
	}
}

// So do bursts, each of them alone and all in turn.
func TestBurstsAreCompliant(t *testing.T) {
	for _, a := range Algorithms {
		o := short(func(o *Options) {
			o.Method, o.Pattern, o.Keys, o.Limit, o.Window, o.Duration = a, CompliantBurst, BurstKeys, 100,
				5*time.Second, 30*time.Second
		})
		compliant(t, o, 0)
	}
}

func TestBurstsOfOneKind(t *testing.T) {
	o := short(func(o *Options) {
		o.Pattern, o.Limit, o.Window, o.Duration, o.BurstAt, o.Burst = CompliantBurst, 100, 5*time.Second,
			time.Minute, Moving, time.Second
	})
	arrivals := all(t, o)
	nodes := make(map[int]bool)
	for i := 0; i+95 <= len(arrivals); i += 95 {
		burst := arrivals[i : i+95]
		if took := time.Duration(burst[94].after - burst[0].after); took > o.Burst || took < o.Burst*8/10 {
			t.Errorf("burst %d takes %v", i/95, took)
		}
		for _, a := range burst {
			if a.node != burst[0].node {
				t.Fatalf("burst %d comes to nodes %d and %d", i/95, burst[0].node, a.node)
			}
		}
		nodes[burst[0].node] = true
	}
	if len(nodes) < 3 {
		t.Errorf("%d bursts come to %d nodes", len(arrivals)/95, len(nodes))
	}
	for client, want := range []Placement{OnOne, OnAll, Moving, Alternating, OnOne} {
		o := Options{Window: time.Hour, Burst: time.Minute}
		if length, where := o.burst(client); length != time.Minute || where != want {
			t.Errorf("bursts of client %d take %v at %s, want them at %s", client, length, where, want)
		}
		o.Burst, o.BurstAt = 0, Alternating
		if length, where := o.burst(client); length != burstLengths[client%3] || where != Alternating {
			t.Errorf("bursts of client %d take %v at %s", client, length, where)
		}
	}
}
