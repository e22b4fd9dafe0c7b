package rulefile

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// The reference names every key, in a table or in the text, and no others in its tables; and its examples are valid.
func TestReadme(t *testing.T) {
	data, err := os.ReadFile("../README.md")
	testkit.Must(t, err)
	text := string(data)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1)
	if len(blocks) < 8 {
		t.Errorf("the README has %d examples", len(blocks))
	}
	for _, block := range blocks {
		if _, err := Parse("README.md", []byte(block[1])); err != nil {
			t.Errorf("%v in\n%s", err, block[1])
		}
	}
	all := slices.Concat(documentKeys, descriptorKeys, rateLimitKeys, refillKeys, chargeOnKeys, flatKeys,
		treeForm.scheduleKeys())
	known := all.names()
	for _, name := range known {
		if !regexp.MustCompile("[`{, ]" + name + "[`:,} ]").MatchString(text) {
			t.Errorf("the README has no %s", name)
		}
	}
	row := regexp.MustCompile("(?m)^\\| (`[a-z0-9_`, ]+) \\| [^|]* \\| [^|]* \\| [^|]* \\|$")
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		for name := range strings.SplitSeq(m[1], ", ") {
			if name = strings.Trim(name, "`"); !slices.Contains(known, name) {
				t.Errorf("the README has a key %s, which no file has", name)
			}
		}
	}
}
