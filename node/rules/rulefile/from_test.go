package rulefile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"
)

// Each way to say where values come from is read, in the words of requests.descriptors. Others are errors with their
// line, and a key has one source in its domain.
func TestFrom(t *testing.T) {
	parse := func(from string) error {
		set, err := rulefile.Parse("f.yaml", fmt.Appendf(nil, "domain: d\ndescriptors:\n- key: k\n  from: %s\n"+
			"  rate_limit: {name: n, unit: hour, requests_per_unit: 1}\n", from))
		if err == nil && set.Sources("d")["k"] != strings.Trim(from, `"`) {
			t.Errorf("%s is read as %q", from, set.Sources("d")["k"])
		}
		return err
	}
	for _, good := range []string{"client", "client_cert", "method", "host", "path", "header X-Api-Key", "cookie sid",
		"query token", "jwt sub", `"template /tenants/{tenant}/*"`, `"template /{tenant}"`} {
		if err := parse(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{`""`, "header", "header ", "nobody", "client x", "Header X", "template /x", "text x",
		"[header X]", `"header X Y"`} {
		if err := parse(bad); err == nil || !strings.Contains(err.Error(), "f.yaml:4") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	_, err := rulefile.Parse("f.yaml", []byte("domain: d\ndescriptors:\n- key: k\n  value: a\n  from: header A\n"+
		"- key: k\n  from: header B\n"))
	if err == nil || !strings.Contains(err.Error(), `f.yaml:7`) || !strings.Contains(err.Error(), `from "header A"`) {
		t.Errorf("two sources of a key: %v", err)
	}
	_, err = rulefile.Options{Compatibility: rulefile.Ratelimit}.Parse("f.yaml", []byte("domain: d\ndescriptors:\n"+
		"- key: k\n  from: header A\n  rate_limit: {unit: hour, requests_per_unit: 1}\n"))
	if err == nil || !strings.Contains(err.Error(), "from") {
		t.Errorf("in a file of envoyproxy/ratelimit: %v", err)
	}
}
