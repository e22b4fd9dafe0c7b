package main_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/edgelimit/edgelimit/"

// allowed is who may import whom among the project's packages, test files apart. A package is under the longest of these prefixes.
// Data flows one way, core <- adapters <- runtime <- command, and what is made for tests serves tests and the testnet alone.
var allowed = map[string][]string{
	"counters":              {},
	"counters/counterstest": {"counters"},
	"gossip":                {"counters"},
	"gossip/gossiptest":     {},
	"regions":               {"counters"},
	"regions/regionstest":   {"counters", "regions"},
	"node": {
		"counters", "gossip", "regions", "node/rules", "node/actions", "node/httpapi", "node/respapi", "node/admin", "node/clock",
	},
	"node/rules":             {"counters"},
	"node/actions":           {"node/rules"},
	"node/httpapi":           {"counters", "node/rules", "node/actions"},
	"node/respapi":           {"counters"},
	"node/middleware":        {"counters", "node/rules", "node/actions", "node/httpapi"},
	"node/middleware/grpcmw": {"counters", "node/rules", "node/actions", "node/httpapi"},
	"node/client":            {"node/rules"},
	"node/admin":             {},
	"node/clock":             {},
	"testnet":                {"counters", "counters/counterstest", "gossip", "gossip/gossiptest", "regions", "node", "node/rules", "node/actions"},
	"cmd":                    {"node", "node/rules", "node/client", "testnet"},
}

type goPackage struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

func list(t *testing.T, pattern string) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Standard", pattern).Output()
	if err != nil {
		t.Fatalf("go list %s: %v", pattern, err)
	}
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// TestImports holds the picture of the house true: see allowed.
func TestImports(t *testing.T) {
	packages := list(t, module+"...")
	if len(packages) < 10 {
		t.Fatalf("only %d packages found", len(packages))
	}
	for _, p := range packages {
		from := strings.TrimPrefix(p.ImportPath, module)
		may, ok := allowed[ruleFor(from)]
		if !ok {
			t.Errorf("%s: no rule says what it may import; add one to allowed", from)
		}
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module)
			if ours && !slices.Contains(may, ruleFor(to)) && ruleFor(to) != ruleFor(from) {
				t.Errorf("%s imports %s, which it may not: it may import %v", from, to, may)
			}
		}
	}
}

// TestCoreIsPure holds that the core needs nothing but the standard library.
func TestCoreIsPure(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", module+"counters").Output()
	if err != nil {
		t.Fatal(err)
	}
	if deps := strings.Fields(string(out)); len(deps) != 1 || deps[0] != module+"counters" {
		t.Errorf("counters needs %v", deps)
	}
}

// TestGRPCStaysApart holds that who limits an HTTP server, or asks a node, does not build gRPC.
func TestGRPCStaysApart(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", module+"node/middleware", module+"node/client").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(out)) {
		if strings.HasPrefix(dep, "google.golang.org/grpc") {
			t.Fatalf("node/middleware or node/client needs %s", dep)
		}
	}
}

// ruleFor returns the prefix in allowed that a package is under, or "".
func ruleFor(path string) string {
	best := ""
	for prefix := range allowed {
		if (path == prefix || strings.HasPrefix(path, prefix+"/")) && len(prefix) > len(best) {
			best = prefix
		}
	}
	return best
}
