package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// StoreFault is something that befalls the stores of regions: what a Redis does that its region's nodes reconcile with.
type StoreFault struct {
	Kind        StoreFaultKind
	Region      int // numbered from 1; 0 is every one
	From, Until time.Duration
}

// StoreFaultKind is what befalls a store.
type StoreFaultKind string

// Those that last, from From until Until; and those that happen in one moment, in which Until is From.
const (
	StoreDown    StoreFaultKind = "down"    // calls fail at once
	StoreMute    StoreFaultKind = "mute"    // does what it is asked, but no answer arrives: calls time out
	StoreSlow    StoreFaultKind = "slow"    // takes up to 2.5 s: most calls time out, and take effect all the same, later than newer ones
	StoreTwice   StoreFaultKind = "twice"   // each call takes effect twice, the second time up to a second later
	StoreStale   StoreFaultKind = "stale"   // a replica takes over at Until, as another server, that has heard nothing since From
	StoreRewind  StoreFaultKind = "rewind"  // the same, but it says to be the server that it heard then
	StoreFlush   StoreFaultKind = "flush"   // FLUSHALL: the same server, empty
	StoreRestart StoreFaultKind = "restart" // another server, empty
)

// StoreFaultKinds are all of them.
var StoreFaultKinds = []StoreFaultKind{StoreDown, StoreMute, StoreSlow, StoreTwice, StoreStale, StoreRewind, StoreFlush, StoreRestart}

// lasts reports whether it is about a time, not a moment.
func (k StoreFaultKind) lasts() bool { return k != StoreFlush && k != StoreRestart }

// ParseStoreFault reads a fault as the command line has it, from the start of the run on:
//
//	flush@20s         at every store
//	down@30s-40s      what lasts has an end
//	stale@47s-50s     a replica that has heard nothing since 47 s takes over at 50 s
//	flush/2@20s       at the store of region 2
func ParseStoreFault(s string) (StoreFault, error) {
	fail := func(what string) (StoreFault, error) {
		return StoreFault{}, fmt.Errorf("fault of Redis %q: %s; want e.g. flush@20s, down@30s-40s, stale@47s-50s or flush/2@20s", s, what)
	}
	what, when, ok := strings.Cut(s, "@")
	if !ok {
		return fail("no time after @")
	}
	kind, region, ofOne := strings.Cut(what, "/")
	f := StoreFault{Kind: StoreFaultKind(kind)}
	if !slices.Contains(StoreFaultKinds, f.Kind) {
		return fail(fmt.Sprintf("%q is none of %v", kind, StoreFaultKinds))
	}
	if ofOne {
		if f.Region, ok = parseRegion(region); !ok || f.Region == 0 {
			return fail("the region is no number")
		}
	}
	from, until, lasts := strings.Cut(when, "-")
	if lasts != f.Kind.lasts() {
		if lasts {
			return fail(kind + " happens in a moment, and has no end")
		}
		return fail(kind + " has no end of the time")
	}
	var err error
	if f.From, err = time.ParseDuration(from); err != nil {
		return fail("the beginning is no duration")
	}
	if f.Until = f.From; lasts {
		if f.Until, err = time.ParseDuration(until); err != nil {
			return fail("the end is no duration")
		}
	}
	return f, nil
}

// String is what ParseStoreFault reads.
func (f StoreFault) String() string {
	s := string(f.Kind)
	if f.Region > 0 {
		s += "/" + strconv.Itoa(f.Region)
	}
	s += "@" + f.From.String()
	if f.Kind.lasts() {
		s += "-" + f.Until.String()
	}
	return s
}

func (f StoreFault) validate(regions int) error {
	switch {
	case !slices.Contains(StoreFaultKinds, f.Kind):
		return fmt.Errorf("fault of Redis %v: want one of %v", f, StoreFaultKinds)
	case f.Region < 0 || f.Region > regions:
		return fmt.Errorf("fault of Redis %v: there are %d regions", f, regions)
	case f.From < 0 || f.Until > maxDuration || f.Until < f.From || f.Kind.lasts() == (f.Until == f.From):
		return fmt.Errorf("fault of Redis %v: want an end after its beginning, at most %v after the start", f, maxDuration)
	}
	return nil
}
