package rulefile_test

import (
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Who gives a key two limits, as two descriptors or as a list, reads what to write instead. That is valid.
func TestTwoLimitsOfOneKeyNameTheWayOut(t *testing.T) {
	const head = "domain: d\ndescriptors:\n"
	const one, two = "{name: a, unit: second, requests_per_unit: 10}", "{name: b, unit: hour, requests_per_unit: 1000}"
	for name, text := range map[string]string{
		"two descriptors": "- {key: user, rate_limit: " + one + "}\n- {key: user, rate_limit: " + two + "}\n",
		"a list":          "- {key: user, rate_limit: [" + one + ", " + two + "]}\n",
	} {
		_, err := rulefile.Parse("f.yaml", []byte(head+text))
		if err == nil || !strings.Contains(err.Error(), "for a second limit of the same value, give it a descriptor "+
			"with a key of its own and the same source, as {key: user_2, from: client, rate_limit: ...}") {
			t.Errorf("%s: %v", name, err)
		}
	}
	set, err := rulefile.Parse("f.yaml", []byte(head+"- {key: user, from: client, rate_limit: "+one+"}\n"+
		"- {key: user_2, from: client, rate_limit: "+two+"}\n"))
	testkit.Must(t, err)
	if from := set.Sources("d"); from["user"] != "client" || from["user_2"] != "client" {
		t.Errorf("values come from %v", from)
	}
	_, err = rulefile.Parse("f.yaml", []byte(head+"- {key: user}\n- {key: user}\n"))
	if err == nil || strings.Contains(err.Error(), "second limit") {
		t.Errorf("without limits: %v", err)
	}
}
