package rulefile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Of a file that holds no rules, as one that a link leads to by mistake or malice, no error quotes anything; and it
// says where it leads.
func TestErrorsQuoteNoOtherFiles(t *testing.T) {
	const secret = "hunter2-hunter2"
	for name, text := range map[string]string{
		"passwd":     "root:" + secret + ":19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\n",
		"a scalar":   secret + "\n",
		"a list":     "[" + secret + "]\n",
		"settings":   "password: " + secret + "\n",
		"a key":      secret + ": 1\n",
		"broken":     "a: [" + secret + "\n",
		"an anchor":  "a: *" + secret + "\n",
		"a tag":      "!" + secret + " 1\n",
		"two of it":  "a: 1\n---\n" + secret + "\n",
		"not at all": "\x00" + secret + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir, elsewhere := dirOf(t, map[string]string{"a.yaml": domain("a")}), dirOf(t,
				map[string]string{"secret": text})
			target := filepath.Join(elsewhere, "secret")
			testkit.Must(t, os.Symlink(target, filepath.Join(dir, "b.yaml")))
			_, err := Load(dir)
			if err == nil {
				t.Fatal("it is loaded")
			}
			real, _ := filepath.EvalSymlinks(target)
			if text := err.Error(); strings.Contains(text, "hunter2") ||
				!strings.Contains(text, "b.yaml:1:1: ") || !strings.Contains(text, "leads to "+real) {
				t.Errorf("the error is %s", text)
			}
			for _, p := range problemsOf(t, err) {
				if p.Source != "" || p.Excerpt() != "" {
					t.Errorf("the excerpt is %q", p.Source)
				}
			}
		})
	}
}

// Links within the directory, as those of a ConfigMap, are nothing to speak of, and what stands in rules is quoted,
// in part where it is long.
func TestErrorsQuoteRules(t *testing.T) {
	dir := dirOf(t, map[string]string{"..1/a.yaml": "domain: d\ndescriptors: [{key: k, valeu: x}]\nanother: 1\n"})
	link(t, "..1", filepath.Join(dir, "..data"))
	link(t, "..data/a.yaml", filepath.Join(dir, "a.yaml"))
	_, err := Load(dir)
	all := problemsOf(t, err)
	if len(all) != 2 || !strings.Contains(all[0].Error(), `"valeu"`) || !strings.Contains(all[0].Source, "valeu: x") ||
		strings.Contains(err.Error(), "leads to") {
		t.Errorf("%v", err)
	}
	_, err = Parse("f", []byte("domain: d\ndescriptors: "+strings.Repeat("z", 100)+"\n"))
	if text := err.Error(); !strings.Contains(text, strings.Repeat("z", 32)) ||
		strings.Contains(text, strings.Repeat("z", 33)) {
		t.Errorf("%v", err)
	}
}
