package sim

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// load is a small one for owners: 18 nodes.
func load() Load {
	l := Load{Options: DefaultOptions(), KeysTotal: 18 * 60, Overlap: 0.05}
	l.Regions, l.Nodes, l.Keys, l.Window, l.Limit = 3, 6, 0, 2e9, 200
	return l
}

// total is what all nodes of a sample send and receive.
func total(s *Sample) (x NodeSample) {
	for i := range s.Region {
		n := &s.Region[i]
		x.take(n, 1)
		x.Owned, x.Changed, x.Keys = x.Owned+n.Owned, x.Changed+n.Changed, x.Keys+n.Keys
	}
	return x
}

// What is sent is received, and a third of the keys shows what all of them do.
func TestSample(t *testing.T) {
	all, err := TakeSample(t.Context(), load())
	testkit.Must(t, err)
	x := total(all)
	if all.OneIn != 1 || all.StandIns != 0 || !all.HasOwners || x.Owned != 3*counters.Partitions || all.Keys != 18*60 {
		t.Errorf("%+v: %+v", all, x)
	}
	if x.RegionOut != x.RegionIn || math.Abs(x.AcrossOut.Slots-x.AcrossIn.Slots) > 1e-6 || x.AcrossOut.Slots == 0 ||
		x.UpOut.Slots >= x.RegionOut.Slots {
		t.Errorf("sent and received: %+v", x)
	}
	l := load()
	l.MaxRequests = 18 * 60 / 3
	third, err := TakeSample(t.Context(), l)
	testkit.Must(t, err)
	y := total(third)
	if third.OneIn != 3 || third.Keys != 18*60/3 {
		t.Errorf("%+v", third)
	}
	for what, pair := range map[string][2]float64{
		"changed": {x.Changed, y.Changed}, "keys": {x.Keys, y.Keys}, "region": {x.RegionOut.Slots, y.RegionOut.Slots},
		"across": {x.AcrossOut.Slots, y.AcrossOut.Slots}, "bytes": {x.AcrossOut.Bytes, y.AcrossOut.Bytes},
	} {
		if off := math.Abs(pair[1]/pair[0] - 1); off > 0.15 {
			t.Errorf("%s: %.4g of all keys, %.4g of a third", what, pair[0], pair[1])
		}
	}
	again, err := TakeSample(t.Context(), l)
	testkit.Must(t, err)
	if !reflect.DeepEqual(third, again) {
		t.Error("two samples of the same load differ")
	}
}

// A region that stands as one node sends what its nodes would.
func TestSampleWithStandIns(t *testing.T) {
	l := load()
	l.Nodes, l.KeysTotal = 15, 45*60
	all, err := TakeSample(t.Context(), l)
	testkit.Must(t, err)
	l.MaxNodes = 17
	one, err := TakeSample(t.Context(), l)
	testkit.Must(t, err)
	if all.StandIns != 0 || one.StandIns != 2 || one.Nodes != 17 || len(one.Region) != 15 {
		t.Fatalf("%d and %d stand-ins of %d nodes", all.StandIns, one.StandIns, one.Nodes)
	}
	x, y := total(all), total(one)
	for what, pair := range map[string][2]float64{
		"region": {x.RegionOut.Slots, 3 * y.RegionOut.Slots}, "across": {x.AcrossOut.Slots, 3 * y.AcrossOut.Slots},
		"keys": {x.Keys, 3 * y.Keys},
	} {
		if off := math.Abs(pair[1]/pair[0] - 1); off > 0.1 {
			t.Errorf("%s: %.4g where all are simulated, %.4g where not", what, pair[0], pair[1])
		}
	}
}

func TestLoadValidates(t *testing.T) {
	l := load()
	l.KeysTotal, l.Overlap, l.Requests, l.New, l.Regions = -1, 2, -1, -1, 0
	_, err := TakeSample(t.Context(), l)
	for _, want := range []string{"-1 keys", "an overlap of 2", "-1 requests", "-1 new keys", "0 regions", "no keys"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %q", err, want)
		}
	}
}
