package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Partition is a time in which some regions do not hear each other. Regions are numbered from 1; 0 is every other one.
type Partition struct {
	A, B        int  // what A says does not reach B, and, unless OneWay, what B says does not reach A
	OneWay      bool //
	From, Until time.Duration
}

// ParsePartition reads a partition as the command line has it, from the start of the run on:
//
//	2@20s-50s     region 2 and all others
//	1/2@20s-50s   regions 1 and 2, while 3 hears both
//	1>2@20s-50s   one way: what region 1 says does not reach region 2
//	2>*@20s-50s   one way: what region 2 says reaches nobody; *>2 is the other way round
func ParsePartition(s string) (Partition, error) {
	fail := func(what string) (Partition, error) {
		return Partition{}, fmt.Errorf("partition %q: %s; want e.g. 2@20s-50s, 1/2@20s-50s, 1>2@20s-50s or 2>*@20s-50s", s, what)
	}
	who, when, ok := strings.Cut(s, "@")
	if !ok {
		return fail("no time after @")
	}
	from, until, ok := strings.Cut(when, "-")
	if !ok {
		return fail("no end of the time")
	}
	var p Partition
	var err error
	if p.From, err = time.ParseDuration(from); err != nil {
		return fail("the beginning is no duration")
	}
	if p.Until, err = time.ParseDuration(until); err != nil {
		return fail("the end is no duration")
	}
	a, b, pair := strings.Cut(who, "/")
	if !pair {
		if a, b, p.OneWay = strings.Cut(who, ">"); !p.OneWay {
			b = "*"
		}
	}
	if p.A, ok = parseRegion(a); !ok {
		return fail("the first region is neither a number nor *")
	}
	if p.B, ok = parseRegion(b); !ok {
		return fail("the second region is neither a number nor *")
	}
	return p, nil
}

func parseRegion(s string) (int, bool) {
	if s == "*" {
		return 0, true
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return int(n), err == nil && n > 0
}

// String is what ParsePartition reads.
func (p Partition) String() string {
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
	return fmt.Sprintf("%s%s%s@%v-%v", name(p.A), between, name(p.B), p.From, p.Until)
}

func (p Partition) validate(regions int) error {
	switch {
	case p.A < 0 || p.B < 0 || p.A > regions || p.B > regions:
		return fmt.Errorf("partition %v: there are %d regions", p, regions)
	case p.A == p.B:
		return fmt.Errorf("partition %v: want two different sides", p)
	case regions < 2:
		return fmt.Errorf("partition %v: one region has nobody to be cut off from", p)
	case p.From < 0 || p.Until <= p.From:
		return fmt.Errorf("partition %v: want an end after its beginning", p)
	}
	return nil
}

// cuts reports whether what region a says does not reach region b; regions are counted from 0 here.
func (p Partition) cuts(a, b int) bool {
	is := func(region, named int) bool { return named == 0 || named == region+1 }
	return a != b && (is(a, p.A) && is(b, p.B) || !p.OneWay && is(a, p.B) && is(b, p.A))
}
