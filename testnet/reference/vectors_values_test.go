package reference

import (
	"fmt"
	"net/http"
	"strings"
)

// ofValues are about what requests hold.
var ofValues = []group{
	{"malformed", func(s *script) {
		s.of("", 0, d("client=x1"))
		s.of("edge", 0)
		s.of("", 0)
		s.of("nowhere", 0, d("client=x1"))
		s.of("EDGE", 0, d("client=x1"))
		s.ask(d())
		s.ask(d(), d("client=x1"))
		s.ask(d("=x1"))
		s.ask(d("="), d("client=x1"))
		s.ask(d("client=x1", "=x1"))
		s.ask(d("nothing=here"))
		s.ask(hits(0, d()))
	}},
	{"long requests", func(s *script) {
		long := strings.Repeat("v", 10_000)
		s.times(2, d("client="+long))
		s.ask(d("client=" + long + "w"))
		s.ask(d(strings.Repeat("k", 5000) + "=1"))
		s.ask(d("path=/api/" + long))
		s.of(strings.Repeat("d", 5000), 0, d("client=x"))
		var many, nested []string
		for i := range 40 {
			many = append(many, fmt.Sprintf("k%d=%d", i, i))
			nested = append(nested, "tenant=t1")
		}
		s.ask(d(many...))
		s.ask(d(nested...))
		s.times(3, limited(2, hour, d(many...)))
		s.ask(d(append([]string{"tenant=t40", "user=u40"}, many...)...))
	}},
	{"values", func(s *script) {
		for _, address := range []string{
			"192.0.2.1", "2001:db8::1", "2001:db8::2", "2001:DB8::1", "2001:db8:0:0:0:0:0:1", "::ffff:192.0.2.1", "::1",
			"2001:db8::/64", "[2001:db8::1]", "2001:db8::1%eth0",
		} {
			s.times(2, d("remote_address="+address))
		}
		s.times(3, d("remote_address=2001:db8::1"))
		for _, value := range []string{
			"a|b", "a_b", "a:b", "a|b_c:d", "a b", " a", "a ", "A", "a=b", "ü", "u\u0308", "日本", "🙂", "a\nb", "a\x00b",
			"%41", "*", "a*", "\"", "{}", "0", "-1", "true", "null",
		} {
			s.ask(d("client=" + value))
		}
		s.times(3, d("Ключ=значение"))
		s.ask(d("ключ=значение"))
		s.times(3, d("spaced key=spaced value"))
	}},
	{"joined keys", func(s *script) {
		s.times(2, d("a_b=c"))
		s.times(2, d("a=b_c"))
		s.ask(d("a_b_c"))
		s.ask(d("a_b_c="))
		s.times(2, d("joined=x_y"))
		s.times(2, d("joined_x=y"))
		s.ask(d("joined=x"))
		s.ask(d("client_a=1"))
		s.ask(d("client_vip"))
		s.ask(d("client_vip=1"))
		s.times(2, limited(3, hour, d("j=1_k_2")))
		s.times(2, limited(3, hour, d("j=1", "k=2")))
	}},
	{"keys that read the same", func(s *script) {
		s.times(2, d("part=a_b"))
		s.times(2, d("part_a=b"))
	}},
	{"merged", func(s *script) { s.times(3, d("merged=1")) }},
}

// plain are those over HTTP alone.
func plain() (all []exchange) {
	add := func(name, method, path string, bodies ...string) {
		for _, body := range bodies {
			all = append(all, exchange{name: name, http: &httpRequest{method: method, path: path, body: body}})
		}
	}
	// client is a request of a client, with more fields; descriptorOf has them in the descriptor.
	client := func(value, more string) string {
		return `{"domain":"edge","descriptors":[{"entries":[{"key":"client","value":"` + value + `"}]}]` + more + `}`
	}
	descriptorOf := func(value, more string) string {
		return `{"domain":"edge","descriptors":[{"entries":[{"key":"client","value":"` + value + `"}]` + more + `}]}`
	}
	add("JSON", http.MethodPost, "/json",
		"", "{}", "null", "[]", "{", "1", `"edge"`, "\xff",
		client("y1", ``), client("y1", `,"hitsAddend":2`), client("y1", `,"hits_addend":"3"`),
		client("y1", `,"hitsAddend":-1`), client("y1", `,"hitsAddend":4294967296`), client("y1", `,"hitsAddend":1.5`),
		client("y1", `,"unknown":1`), client("y1", `,"domain":"edge"`), client("y1", ``)+" trailing",
		descriptorOf("y2", `,"hits_addend":"2"`), descriptorOf("y2", `,"hitsAddend":0`),
		descriptorOf("y2", `,"hitsAddend":null`), descriptorOf("y2", `,"hitsAddend":{"value":1}`),
		descriptorOf("y3", `,"limit":{"unit":"HOUR","requestsPerUnit":2}`),
		descriptorOf("y3", `,"limit":{"unit":3,"requests_per_unit":2}`),
		descriptorOf("y3", `,"limit":{"unit":"hour","requestsPerUnit":2}`), descriptorOf("y3", `,"unknown":1`),
		`{"domain":"edge","descriptors":[{"entries":[{"key":"client","value":1}]}]}`,
		`{"domain":"edge","descriptors":[{"entries":[{"key":"client"}]}]}`,
		`{"domain":"edge","descriptors":[{"entries":[{}]}]}`,
		`{"domain":"edge","descriptors":[{}]}`,
		`{"domain":"edge","descriptors":[null]}`,
		`{"domain":"edge","descriptors":{}}`,
		` {"domain" : "edge", "descriptors" : [ {"entries": [ {"key":"client","value":"y5"} ] } ] } `,
	)
	add("long JSON", http.MethodPost, "/json", client(strings.Repeat("y", 70_000), ``))
	add("JSON methods", http.MethodPut, "/json", client("y6", ``))
	add("JSON methods", http.MethodGet, "/json", "")
	add("health", http.MethodGet, "/healthcheck", "")
	add("no such path", http.MethodGet, "/nowhere", "")
	all = append(all, exchange{name: "configuration",
		http: &httpRequest{debug: true, method: http.MethodGet, path: "/rlconfig"}})
	for _, service := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService", "nowhere"} {
		all = append(all, exchange{name: "health", health: service})
	}
	return all
}
