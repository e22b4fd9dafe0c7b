package rulefile

import (
	"testing"

	"github.com/edgelimit/edgelimit/node/rules"
)

// FuzzRatelimit holds that no file of envoyproxy/ratelimit makes the reader panic, and that what it takes works: each
// rule is met by a descriptor made of its path, and found by its name.
func FuzzRatelimit(f *testing.F) {
	for _, v := range verdicts(f) {
		f.Add(v.file)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := compatible.Parse("f", data)
		if err != nil {
			for _, p := range Problems(err) {
				if e, ok := p.(*Error); !ok || e.Line < 1 || e.Column < 1 {
					t.Fatalf("a problem without a place: %v", p)
				}
			}
			return
		}
		for _, r := range s.In("eu").Rules() {
			if r.Reference == nil { // of the flat form, or of a domain that is not compatible
				continue
			}
			if s.Rule(r.FullName) == nil || r.Name == "" || r.ReferenceKey() == "" {
				t.Fatalf("%q has no name", r.FullName)
			}
			req := rules.Request{Domain: r.Domain, Descriptors: [][]rules.Entry{r.Path()}}
			met, err := s.Match(&req, rules.Secret{}, nil)
			if err != nil {
				t.Fatalf("%q: %v", r.FullName, err)
			}
			met[0].Charge(&req, 0)
		}
		rlconfig(s)
	})
}
