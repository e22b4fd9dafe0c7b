package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Partition is a time in which frames of some regions do not reach others. Regions are numbered from 1; 0 is every
// other one.
type Partition struct {
	A, B        int  // frames of A do not reach B, and, unless OneWay, those of B do not reach A
	OneWay      bool //
	From, Until time.Duration
}

// ParsePartition reads a partition as the command line has it, from the start of the run on:
//
//	2@20s-50s     region 2 and all others
//	1/2@20s-50s   regions 1 and 2, while 3 reaches both
//	1>2@20s-50s   one way: frames of region 1 do not reach region 2
//	2>*@20s-50s   one way: frames of region 2 reach nobody; *>2 is the other way round
func ParsePartition(s string) (Partition, error) {
	who, from, until, lasts, problem := parseTime(s)
	p := Partition{From: from, Until: until}
	a, b, pair := strings.Cut(who, "/")
	if !pair {
		if a, b, p.OneWay = strings.Cut(who, ">"); !p.OneWay {
			b = "*"
		}
	}
	var okA, okB bool
	p.A, okA = parseRegion(a)
	p.B, okB = parseRegion(b)
	switch {
	case problem != "":
	case !lasts:
		problem = "no end of the time"
	case !okA || !okB:
		problem = "a region is neither a number nor *"
	default:
		return p, nil
	}
	return p, fmt.Errorf("partition %q: %s; want e.g. 2@20s-50s, 1/2@20s-50s, 1>2@20s-50s or 2>*@20s-50s", s, problem)
}

// parseTime reads WHAT@FROM-UNTIL, which lasts, or WHAT@FROM, and says what the problem is if it is neither.
func parseTime(s string) (what string, from, until time.Duration, lasts bool, problem string) {
	what, when, ok := strings.Cut(s, "@")
	if !ok {
		return what, 0, 0, false, "no time after @"
	}
	begin, end, lasts := strings.Cut(when, "-")
	from, err := time.ParseDuration(begin)
	if err != nil {
		return what, 0, 0, lasts, "the beginning is no duration"
	}
	if !lasts {
		return what, from, from, false, ""
	}
	if until, err = time.ParseDuration(end); err != nil {
		problem = "the end is no duration"
	}
	return what, from, until, true, problem
}

func parseRegion(s string) (int, bool) {
	if s == "*" {
		return 0, true
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return int(n), err == nil && n > 0
}

// String is what ParsePartition reads.
func (p Partition) String() string { return fmt.Sprintf("%s@%v-%v", p.sides(), p.From, p.Until) }

// sides is String without the time.
func (p Partition) sides() string {
	name := func(region int) string {
		if region == 0 {
			return "*"
		}
		return strconv.Itoa(region)
	}
	between := "/"
	if p.OneWay {
		between = ">"
	}
	return name(p.A) + between + name(p.B)
}

func (p Partition) validate(regions int) error {
	return errors.Join(
		require(p.A >= 0 && p.B >= 0 && max(p.A, p.B) <= regions, "partition %v: there are %d regions", p, regions),
		require(p.A != p.B, "partition %v: want two different sides", p),
		require(regions > 1, "partition %v: one region has nobody to be cut off from", p),
		require(p.From >= 0 && p.Until > p.From, "partition %v: want an end after its beginning", p))
}

// blocks reports whether frames of region a do not reach region b; regions are counted from 0 here.
func (p Partition) blocks(a, b int) bool {
	is := func(region, named int) bool { return named == 0 || named == region+1 }
	return a != b && (is(a, p.A) && is(b, p.B) || !p.OneWay && is(a, p.B) && is(b, p.A))
}

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
	StoreSlow    StoreFaultKind = "slow"    // takes up to 2.5 s: what times out takes effect all the same, and later
	StoreTwice   StoreFaultKind = "twice"   // each call takes effect twice, the second time up to a second later
	StoreStale   StoreFaultKind = "stale"   // another server takes over at Until, a replica without news since From
	StoreRewind  StoreFaultKind = "rewind"  // the same, but it reports to be the server that it replicated then
	StoreFlush   StoreFaultKind = "flush"   // FLUSHALL: the same server, empty
	StoreRestart StoreFaultKind = "restart" // another server, empty
)

// StoreFaultKinds are all of them.
var StoreFaultKinds = []StoreFaultKind{
	StoreDown, StoreMute, StoreSlow, StoreTwice, StoreStale, StoreRewind, StoreFlush, StoreRestart,
}

// hasEnd reports whether it is about a time, not a moment.
func (k StoreFaultKind) hasEnd() bool { return k != StoreFlush && k != StoreRestart }

// ParseStoreFault reads a fault as the command line has it, from the start of the run on:
//
//	flush@20s         at every store
//	down@30s-40s      what lasts has an end
//	stale@47s-50s     a replica without updates since 47 s takes over at 50 s
//	flush/2@20s       at the store of region 2
func ParseStoreFault(s string) (StoreFault, error) {
	what, from, until, lasts, problem := parseTime(s)
	kind, region, ofOne := strings.Cut(what, "/")
	f := StoreFault{Kind: StoreFaultKind(kind), From: from, Until: until}
	if ofOne {
		f.Region, _ = parseRegion(region)
	}
	switch {
	case problem != "":
	case !slices.Contains(StoreFaultKinds, f.Kind):
		problem = fmt.Sprintf("%q is none of %v", kind, StoreFaultKinds)
	case ofOne && f.Region == 0:
		problem = "the region is no number"
	case lasts && !f.Kind.hasEnd():
		problem = kind + " happens in a moment, and has no end"
	case !lasts && f.Kind.hasEnd():
		problem = kind + " has no end of the time"
	default:
		return f, nil
	}
	return f, fmt.Errorf("fault of Redis %q: %s; want e.g. flush@20s, down@30s-40s, stale@47s-50s or flush/2@20s", s,
		problem)
}

// String is what ParseStoreFault reads.
func (f StoreFault) String() string {
	s := string(f.Kind)
	if f.Region > 0 {
		s += "/" + strconv.Itoa(f.Region)
	}
	s += "@" + f.From.String()
	if f.Kind.hasEnd() {
		s += "-" + f.Until.String()
	}
	return s
}

func (f StoreFault) validate(regions int) error {
	inTime := f.From >= 0 && f.Until <= maxDuration && f.Until >= f.From && f.Kind.hasEnd() == (f.Until > f.From)
	return errors.Join(
		require(slices.Contains(StoreFaultKinds, f.Kind), "fault of Redis %v: want one of %v", f, StoreFaultKinds),
		require(f.Region >= 0 && f.Region <= regions, "fault of Redis %v: there are %d regions", f, regions),
		require(inTime, "fault of Redis %v: want an end after its beginning, at most %v after the start", f,
			maxDuration))
}
