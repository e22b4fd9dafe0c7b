package rulefile

import (
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// What would show a secret is refused, in a rule that counts by it.
func TestSecretsAreNotShown(t *testing.T) {
	const limit, metric = "rate_limit: {unit: minute, requests_per_unit: 5", "value_to_metric"
	for keys, want := range map[string]string{
		"{key: token, secret: true, " + limit + "}}":                                             "",
		"{key: token, value: a, secret: true, " + limit + ", expose: identity}}":                 "",
		"{key: token, secret: true, " + limit + ", expose: identity}}":                           "expose would show",
		"{key: ip, secret: true, " + limit + ", ban: 1h, export: address}}":                      "export would show",
		"{key: token, secret: true, " + metric + ": true, " + limit + "}}":                       metric + " would",
		"{key: token, secret: 1, " + limit + "}}":                                                "secret must be true",
		"{key: token, secret: true, descriptors: [{key: ip, " + limit + ", expose: identity}}]}": "expose would show",
	} {
		_, err := Parse("f", []byte("domain: edge\ndescriptors:\n  - "+keys+"\n"))
		if want == "" {
			testkit.Must(t, err)
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", keys, err, want)
		}
	}
}
