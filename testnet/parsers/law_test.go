package parsers

import (
	"bufio"
	"bytes"
	"net/http"
	"slices"
	"testing"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/testnet/evasion"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// counter is how edgelimit counts requests: at /v1/auth, or in its proxy and the middleware.
type counter struct {
	actions *actions.Actions
	request func(evasion.Variation) []byte
	count   func(*actions.Actions, *http.Request, *rules.Request) actions.Outcome
}

func countings(t testing.TB) map[string]*counter {
	a, err := actions.New(evasion.Requests("127.0.0.1"))
	testkit.Must(t, err)
	asked := func(v evasion.Variation) []byte { return v.Asked("/v1/auth") }
	return map[string]*counter{
		"auth":  {a, asked, (*actions.Actions).DescribeOriginal},
		"proxy": {a, evasion.Variation.Direct, (*actions.Actions).Describe},
	}
}

// counts returns the values under which the form is counted, by the keys of their layers; false if it is denied.
func (c *counter) counts(f Form) (map[string][]string, bool) {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(c.request(f.Variation()))))
	if err != nil {
		return nil, false
	}
	r.RemoteAddr = "127.0.0.1:1"
	var req rules.Request
	if out := c.count(c.actions, r, &req); out.Denied != "" {
		return nil, false
	}
	values := map[string][]string{}
	for _, d := range req.Descriptors {
		values[d[0].Key] = append(values[d[0].Key], d[0].Value)
	}
	return values, true
}

// check holds that a form counts as plain in the layers in which servers read it so. It returns how many readings these
// are, and whether it does.
func (c *counter) check(t testing.TB, r Recorded) (n int, ok bool) {
	t.Helper()
	var values map[string][]string
	ok = true
	for _, l := range layers {
		reader := slices.IndexFunc(r.Read, l.reads)
		if l.source != r.Source || reader < 0 {
			continue
		}
		if n++; n == 1 {
			var counted bool
			if values, counted = c.counts(r.Form); !counted {
				return n, true
			}
		}
		if !slices.Contains(values[l.key], l.value) {
			t.Errorf("%s reads %s as the plain request's, but layer %s counts %q", Servers[reader].Name, r.Form, l.key,
				values[l.key])
			ok = false
		}
	}
	return n, ok
}

// TestNothingPasses: whatever a real server reads as the plain request's counts as that, or is denied.
func TestNothingPasses(t *testing.T) {
	recorded, err := Recording()
	testkit.Must(t, err)
	for name, c := range countings(t) {
		t.Run(name, func(t *testing.T) {
			read, passed := 0, 0
			for _, r := range recorded {
				n, ok := c.check(t, r)
				if read += n; !ok {
					passed++
				}
			}
			t.Logf("%d forms, in %d layers read as plain by some server; %d pass", len(recorded), read, passed)
		})
	}
}
