package reference

import (
	"net/http"
	"strings"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type descriptor = common.RateLimitDescriptor

// d is a descriptor of entries key=value.
func d(entries ...string) *descriptor {
	made := new(descriptor)
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		made.Entries = append(made.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return made
}

// hits is the descriptor with an addend of its own, 0 for a peek.
func hits(n uint64, made *descriptor) *descriptor {
	made.HitsAddend = wrapperspb.UInt64(n)
	return made
}

// negative is the descriptor with is_negative_hits.
func negative(made *descriptor) *descriptor {
	made.IsNegativeHits = true
	return made
}

// limited is the descriptor with a limit of its own.
func limited(n uint32, unit envoytype.RateLimitUnit, made *descriptor) *descriptor {
	made.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
	return made
}

// multiplied is the descriptor with a limit whose unit counts several times.
func multiplied(by uint32, made *descriptor) *descriptor {
	made.Limit.UnitMultiplier = wrapperspb.UInt32(by)
	return made
}

func request(domain string, addend uint32, all ...*descriptor) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: domain, HitsAddend: addend, Descriptors: all}
}

// script collects exchanges.
type script struct {
	group string
	all   []exchange
}

// of asks for some hits in a domain.
func (s *script) of(domain string, addend uint32, all ...*descriptor) {
	s.all = append(s.all, exchange{name: s.group, request: request(domain, addend, all...)})
}

// ask asks for one hit.
func (s *script) ask(all ...*descriptor) { s.of("edge", 0, all...) }

// times asks for one hit n times.
func (s *script) times(n int, all ...*descriptor) {
	for range n {
		s.ask(all...)
	}
}

// later asks for one hit once the next window of a length has begun.
func (s *script) later(window time.Duration, all ...*descriptor) {
	s.ask(all...)
	s.all[len(s.all)-1].wait = window
}

const (
	second  = envoytype.RateLimitUnit_SECOND
	minute  = envoytype.RateLimitUnit_MINUTE
	hour    = envoytype.RateLimitUnit_HOUR
	day     = envoytype.RateLimitUnit_DAY
	month   = envoytype.RateLimitUnit_MONTH
	year    = envoytype.RateLimitUnit_YEAR
	unknown = envoytype.RateLimitUnit_UNKNOWN
)

// scripted are the exchanges that run in every setting.
func scripted() []exchange {
	var s script
	for _, g := range groups {
		s.group = g.name
		g.ask(&s)
	}
	return s.all
}

// edges are scripts of exchanges before and after the ends of windows. Each waits for one minute to end at most, and
// has servers of its own: all wait for the same one.
func edges() (scripts [][]exchange) {
	s := script{group: "edges of seconds"}
	for range 3 {
		s.later(time.Second, d("unit=second"))
		s.times(4, d("unit=second"))
		s.ask(hits(0, d("unit=second")))
		s.times(2, limited(2, second, d("client=w1")), d("unit=second"))
	}
	s.later(time.Second, hits(0, d("unit=second")))
	s.ask(hits(7, d("unit=second")))
	s.later(time.Second, hits(0, d("unit=second")))
	s.group = "edges of minutes"
	used := []*descriptor{d("unit=second"), d("unit=minute"), d("unit=hour"), limited(1, minute, d("client=w2"))}
	s.times(4, used...)
	s.later(time.Minute, hits(0, used[1]))
	s.times(4, used...)
	together := script{group: "windows of one beginning"}
	together.later(time.Minute, d("unit=second"), limited(9, minute, d("unit=second")))
	return [][]exchange{s.all, together.all}
}

// unknownUnits are exchanges that end the reference, and therefore have it to themselves.
func unknownUnits() []exchange {
	s := script{group: "unknown units"}
	s.ask(limited(1, unknown, d("client=a")))
	return append(atJSON(s.all), s.all...)
}

// atJSON asks the same at /json.
func atJSON(script []exchange) (all []exchange) {
	for _, e := range script {
		body, err := protojson.Marshal(e.request)
		if err != nil {
			panic(err)
		}
		all = append(all, exchange{name: "json " + e.name, wait: e.wait,
			http: &httpRequest{method: http.MethodPost, path: "/json", body: string(body), rateLimit: e.request}})
	}
	return all
}
