package reference

import (
	"fmt"
	"math"
	"slices"

	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// groups are the scripted exchanges by what they are about. They share no counts.
var groups = slices.Concat(ofCounts, ofRules, ofValues)

type group struct {
	name string
	ask  func(*script)
}

// ofCounts are about what a hit counts.
var ofCounts = []group{
	{"counting", func(s *script) {
		s.times(7, d("client=a"))
		s.times(2, d("client=b"))
		s.times(3, d("client=blocked"))
		s.times(2, d("client=free"))
		s.times(2, d("client=unstated"))
		s.times(2, d("client=unruled"))
		s.times(12, d("client=vip"))
		s.ask(d("client="))
		s.ask(d("client"))
	}},
	{"addends", func(s *script) {
		s.of("edge", 2, d("client=c"))
		s.of("edge", 2, d("client=c"))
		s.of("edge", 2, d("client=c"))
		s.of("edge", 1, d("client=c"))
		s.of("edge", 100, d("client=e"))
		s.ask(d("client=e"))
		s.ask(hits(3, d("client=f")))
		s.of("edge", 3, hits(1, d("client=f")))
		s.of("edge", 3, hits(1, d("client=f")), d("client=g"))
		s.ask(hits(1, d("client=f")))
		s.of("edge", 5, d("client=h"))
		s.ask(hits(5, d("client=i")))
		s.ask(hits(6, d("client=j")))
		s.of("edge", math.MaxUint32, d("client=k"))
		s.ask(d("client=k"))
	}},
	{"peeks", func(s *script) {
		s.ask(hits(0, d("client=p1")))
		s.times(4, d("client=p1"))
		s.ask(hits(0, d("client=p1")))
		s.ask(d("client=p1"))
		s.ask(hits(0, d("client=p1"))) // exactly used up
		s.ask(d("client=p1"))
		s.ask(hits(0, d("client=p1")))
		s.ask(hits(0, d("client=p2")), d("client=p3"))
		s.ask(hits(0, d("client=blocked")))
		s.ask(hits(0, d("client=free")))
		s.ask(hits(0, d("nothing=here")))
		s.of("edge", 7, hits(0, d("client=p4")))
		s.ask(hits(0, d("client=p4")), hits(3, d("client=p4")), hits(0, d("client=p4")))
	}},
	{"charge after the fact", func(s *script) {
		s.ask(hits(0, d("large=t1")))
		s.ask(hits(900, d("large=t1")))
		s.ask(hits(0, d("large=t1")))
		s.ask(hits(5000, d("large=t1")))
		s.ask(hits(0, d("large=t1")))
		s.ask(hits(1, d("large=t1")))
		s.ask(hits(400, d("large=t2")), hits(700, d("large=t3")), hits(1200, d("large=t4")))
		s.ask(hits(400, d("large=t2")), hits(700, d("large=t3")), hits(0, d("large=t4")))
		s.ask(hits(0, d("large=t2")), hits(0, d("large=t3")), hits(0, d("large=t4")))
	}},
	{"huge addends", func(s *script) {
		s.ask(hits(1<<32, d("largest=h1")))
		s.ask(d("largest=h1"))
		s.ask(hits(math.MaxUint32, d("largest=h2")))
		s.ask(hits(0, d("largest=h2")))
		s.ask(d("largest=h2"))
		s.ask(hits(1<<40, d("largest=h3")))
		s.ask(hits(1<<40+1, d("largest=h4")))
		s.ask(hits(0, d("largest=h4")))
		s.ask(hits(1<<62, d("largest=h5")))
		s.ask(hits(1<<62, d("largest=h5")))
		s.ask(hits(0, d("largest=h5")))
		s.ask(hits(math.MaxInt64, d("largest=h6")))
		s.ask(hits(1, d("largest=h6")))
		s.ask(hits(math.MaxInt64+1, d("largest=h7")))
		s.ask(hits(math.MaxUint64, d("largest=h8")))
		s.ask(hits(0, d("largest=h8")))
		s.ask(hits(math.MaxUint64, d("huge=h9")), d("huge=h10"))
		s.ask(hits(0, d("huge=h9")), hits(0, d("huge=h10")))
		s.ask(hits(math.MaxUint64, d("nothing=here")))
		s.ask(hits(math.MaxUint64, d("client=free")))
		s.ask(hits(math.MaxUint64, d("base=h11")), d("premium=h11"))
		s.of("nowhere", 0, hits(math.MaxUint64, d("client=h12")))
	}},
	{"negative hits", func(s *script) {
		s.times(3, d("client=n1"))
		s.ask(negative(d("client=n1")))
		s.ask(negative(hits(2, d("client=n1"))))
		s.ask(negative(hits(0, d("client=n1"))))
		s.ask(d("client=n1"))
		s.of("edge", 3, negative(d("client=n2")))
		s.ask(d("client=n2"))
	}},
	{"several descriptors", func(s *script) {
		for range 6 {
			s.ask(d("client=s1"), d("client=vip2"), d("large=s1"))
		}
		s.ask(d("large=s1"), d("client=s1"), d("nothing=here"))
		s.times(3, d("client=s2"), d("client=s2"))
		s.ask(d("client=s2"), d("client=s3"))
		s.ask(d("client=s3"), d("client=s2"))
		s.ask(d("client=blocked"), d("client=free"), d("client=unstated"), d("client=unruled"))
		s.ask(d("large=s4"), d("client=s4"), d("unit=day"))
		var same, different, none []*descriptor
		for i := range 40 {
			same = append(same, d("large=s5"))
			different = append(different, d(fmt.Sprintf("large=s6-%d", i)))
			none = append(none, d(fmt.Sprintf("nothing=%d", i)))
		}
		s.ask(same...)
		s.ask(same...)
		s.ask(different...)
		s.of("edge", 30, different...)
		s.ask(none...)
		s.ask(append(same[:20:20], none...)...)
	}},
	{"unit multipliers", func(s *script) {
		s.times(2, multiplied(2, limited(2, hour, d("client=o10"))))
		s.ask(limited(2, hour, d("client=o10")))
		s.ask(multiplied(0, limited(2, hour, d("client=o11"))))
	}},
	{"overrides", func(s *script) {
		o := func(value string, n uint32, unit envoytype.RateLimitUnit) *descriptor {
			return limited(n, unit, d("client="+value))
		}
		s.times(3, d("client=o1"))
		s.times(2, o("o1", 8, hour)) // counts with the rule
		s.times(4, d("client=o1"))
		s.ask(o("o1", 8, hour))
		s.ask(o("o1", 4, hour))
		s.ask(o("o1", 100, hour))
		s.times(3, o("o2", 2, second)) // another unit, counts apart
		s.ask(d("client=o2"))
		s.ask(o("o2", 2, hour))
		s.times(3, limited(2, day, d("unruled=day")))
		s.times(3, limited(2, month, d("unruled=month")))
		s.times(3, limited(2, year, d("unruled=year")))
		s.times(3, limited(2, hour, d("unruled=o3")))
		s.ask(d("unruled=o3"))
		s.times(2, limited(1, hour, d("unruled=o3", "more=o3")))
		s.of("nowhere", 0, limited(1, hour, d("client=o4")))
		s.of("nowhere", 0, limited(1, unknown, d("client=o4")))
		s.times(2, o("o5", 0, hour))
		s.ask(o("o5", math.MaxUint32, hour))
		s.ask(hits(0, o("o6", 3, hour)))
		s.ask(hits(4, o("o6", 3, hour)))
		s.ask(limited(3, hour, d("client=free")))
		s.ask(limited(3, hour, d("client=blocked")))
		// In the unit of its rule: the reference keeps one count for limits whose windows begin in the same second, as
		// those of an hour and a day do between midnight and one o'clock UTC.
		s.times(3, limited(1, day, d("client=vip")))
		s.times(3, limited(1, hour, d("shadow=o7")))
		s.times(3, limited(1, hour, d("quota=o7")))
		s.times(3, limited(1, hour, d("premium=o8")), d("base=o8"))
		s.times(3, limited(3, hour, d("files=files/o9")))
		s.times(2, limited(2, hour, d()))
		s.ask(limited(2, hour, d("=", "=", "client=o15")))
		s.ask(o("o12", 2, minute))
		s.ask(limited(2, envoytype.RateLimitUnit(6), d("client=o13")))
		s.ask(limited(2, hour, d("client=o14")), limited(4, hour, d("client=o14")), d("client=o14"))
	}},
}
