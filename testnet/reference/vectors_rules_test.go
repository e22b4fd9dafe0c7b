package reference

import (
	"fmt"
	"slices"
)

// ofRules are about which rule a descriptor meets.
var ofRules = []group{
	{"nested rules", func(s *script) {
		s.times(2, d("tenant=t1"))
		s.times(4, d("tenant=t1", "user=u1"))
		s.times(2, d("tenant=t1", "user=u1", "path=/login"))
		s.ask(d("tenant=t1", "user=u1", "path=/other"))
		s.ask(d("tenant=t1", "user=u1", "path=/login", "deeper=1"))
		s.times(3, d("tenant=t1", "user=root"))
		s.ask(d("tenant=t1", "user=root", "path=/login"))
		s.times(3, d("tenant=t1", "user=admin"))
		s.ask(d("tenant=t1", "user=adm"))
		s.ask(d("tenant=t1", "user=admin", "path=/login"))
		s.ask(d("tenant=t1", "other=u1"))
		s.ask(d("user=u1", "tenant=t1"))
		s.ask(d("user=u1"))
		s.ask(d("org=o1"))
		s.ask(d("org=o1", "team=t1"))
		s.times(3, d("org=o1", "team=t1", "member=m1"))
		s.ask(d("org=o1", "team=t2", "member=m1"))
		s.ask(d("org=closed", "team=t1", "member=m1"))
		s.times(3, d("same=1", "same=1"))
		s.ask(d("same=1"))
		s.ask(d("same=1", "same=1", "same=1"))
		s.ask(d("tenant=t9"), d("tenant=t9", "user=u9"), d("tenant=t9", "user=u9", "path=/login"))
	}},
	{"wildcards", func(s *script) {
		s.times(5, d("path=/api/x"))
		s.times(2, d("path=/api/y"))
		s.times(4, d("path=/api/v1/exact"))
		s.times(3, d("path=/api/v1/exac"))
		s.ask(d("path=/api/"))
		s.ask(d("path=/api"))
		s.ask(d("path="))
		s.ask(d("path=*"))
		s.ask(d("path=/api/*"))
		s.times(3, d("prefix=a"))
		s.times(3, d("prefix=abb"))
		s.times(3, d("prefix=a*b"))
		s.times(3, d("prefix=b"))
		s.ask(d("wild=1"))
		s.ask(d("wild"))
		s.ask(d("wildcard=1"))
		s.times(3, d("wild*=1"))
		s.times(3, d("wild*"))
	}},
	{"shared thresholds", func(s *script) {
		for i := range 6 {
			s.ask(d(fmt.Sprintf("files=files/%d", i)))
		}
		s.times(3, d("files=files/own"))
		s.ask(d("files=files*"))
		s.ask(d("files=other"))
		for i := range 4 {
			s.ask(d(fmt.Sprintf("bucket=b%d", i), "op=put"))
			s.ask(d(fmt.Sprintf("bucket=b%d", i), fmt.Sprintf("op=get%d", i)))
		}
		s.ask(d("bucket=b1", "op=list"))
		s.ask(d("bucket=b1"))
		s.ask(d("files=files/7"), d("files=files/8"))
		s.ask(hits(0, d("files=files/9")))
	}},
	{"wildcards in keys", func(s *script) {
		s.times(2, d("kw1=a"))
		s.times(2, d("kw1=b"))
		s.ask(d("kw2=a"))
		s.ask(limited(3, hour, d("kw1=a")))
		s.ask(d("kw"))
		s.times(2, d("split_a=1"))
		s.times(2, d("split=a_2"))
		s.ask(d("split_a=*"))
		s.ask(limited(3, hour, d("split_a=*")))
		s.ask(d("split_a_b=1"))
		s.ask(d("trail_=1"))
		s.ask(d("trail="))
		s.ask(d("trail_="))
		s.ask(d("numbered=1"))
	}},
	{"more descriptors than a decision has", func(s *script) {
		var many []*descriptor
		for i := range 40 {
			many = append(many, d(fmt.Sprintf("large=m%d", i)))
		}
		around := func(first, last *descriptor) {
			s.ask(slices.Concat([]*descriptor{first}, many, []*descriptor{last})...)
		}
		for range 3 {
			around(d("base=m1"), d("premium=m1"))
			around(d("premium=m2"), d("base=m2"))
			around(d("base=m3"), d("waived=m3"))
		}
		for range 7 {
			around(d("client=m4"), d("large=m50"))
			around(d("large=m51"), hits(2, d("client=m5")))
		}
		around(hits(0, d("client=m5")), d("large=m52"))
		around(d("gold=m6"), d("premium=m6"))
	}},
	{"modes", func(s *script) {
		s.times(4, d("shadow=1"))
		s.times(4, d("quota=1"))
		s.times(4, d("both=1"))
		s.ask(d("shadow=1"), d("quota=1"), d("both=1"))
		s.ask(d("shadow=1"), d("client=m1"))
		s.of("edge", 6, d("quota=1"), d("client=m1"))
		s.ask(d("quota=1"), d("client=m1"), d("nothing=here"))
		s.ask(d("client=m2"), d("quota=1"))
		s.ask(hits(0, d("quota=1")), hits(0, d("shadow=1")))
		s.ask(hits(2, d("quota=2")))
		s.ask(hits(0, d("quota=2")))
	}},
	{"names and replaces", func(s *script) {
		s.times(3, d("base=1"))
		s.times(3, d("base=2"), d("premium=2"))
		s.times(4, d("premium=3"), d("base=3"), d("base2=3"))
		s.times(5, d("gold=4"), d("premium=4"), d("base=4"))
		s.ask(d("base=2"))
		s.ask(d("base=4"))
		s.ask(d("premium=4"))
		s.times(3, d("waived=5"), d("base=5"))
		s.ask(d("base=5"))
		s.times(2, d("left=6"), d("right=6"))
		s.times(4, d("left=6"))
		s.times(4, d("absent=7"), d("base=7"))
		s.ask(d("premium=8"), d("premium=8"))
		s.ask(limited(9, hour, d("gold=9")), d("base=9"))
		s.ask(d("gold=9"), limited(9, hour, d("base=9")))
	}},
	{"units", func(s *script) {
		for _, unit := range []string{"minute", "hour", "day", "week", "month", "year"} {
			s.times(4, d("unit="+unit))
		}
		s.times(2, d("unit=minute"), d("unit=hour"), d("unit=day"), d("unit=week"), d("unit=month"), d("unit=year"))
		s.ask(d("unit=fortnight"))
	}},
	{"statistics", func(s *script) {
		s.times(4, d("detailed=1"))
		s.times(2, d("detailed=2"))
		s.times(4, d("valued=1"))
		s.times(3, d("valued=1", "inner=1"))
	}},
}
