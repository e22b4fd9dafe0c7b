package main_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/edgelimit/edgelimit/"

// picture is how CONTRIBUTING.md introduces what may import what: a block of lines "packages -> packages".
const picture = "fails where it is wrong:\n\n```\n"

// readPicture returns what each package may import among the project's packages, test files apart, as CONTRIBUTING.md
// shows it. A package is under the longest of the prefixes.
func readPicture(t *testing.T) map[string][]string {
	t.Helper()
	document, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(document), picture)
	block, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatalf("CONTRIBUTING.md has no block behind %q", picture)
	}
	allowed := make(map[string][]string)
	for line := range strings.Lines(block) {
		from, to, arrow := strings.Cut(strings.TrimSpace(line), "->")
		if !arrow {
			t.Fatalf("CONTRIBUTING.md: %q has no arrow", line)
		}
		for _, pkg := range strings.Split(from, ",") {
			pkg = strings.TrimSpace(pkg)
			allowed[pkg] = append(allowed[pkg], strings.FieldsFunc(to,
				func(r rune) bool { return r == ',' || r == ' ' })...)
		}
	}
	return allowed
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

// TestImports holds CONTRIBUTING.md's picture of the packages true.
func TestImports(t *testing.T) {
	allowed := readPicture(t)
	packages := list(t, module+"...")
	if len(packages) < 10 {
		t.Fatalf("only %d packages found", len(packages))
	}
	for _, p := range packages {
		from := strings.TrimPrefix(p.ImportPath, module)
		may, ok := allowed[ruleFor(allowed, from)]
		if !ok {
			t.Errorf("%s is not in CONTRIBUTING.md's picture", from)
		}
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module)
			rule := ruleFor(allowed, to)
			if ours && !slices.Contains(may, rule) && !slices.Contains(may, "everything") &&
				rule != ruleFor(allowed, from) {
				t.Errorf("%s imports %s, which it may not: it may import %v", from, to, may)
			}
		}
	}
}

// TestCoreIsPure holds that the core needs nothing but the standard library and the words for durations.
func TestCoreIsPure(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}",
		module+"counters").
		Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(out)) {
		if dep != module+"node/text" && !strings.HasPrefix(dep+"/", module+"counters/") {
			t.Errorf("counters needs %s", dep)
		}
	}
}

// TestGRPCStaysApart holds that who embeds a node, limits an HTTP server with it, or asks one, does not build gRPC.
func TestGRPCStaysApart(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", module+"node", module+"node/middleware", module+"node/client").
		Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(out)) {
		if strings.HasPrefix(dep, "google.golang.org/grpc") || strings.Contains(dep, "go-control-plane") {
			t.Fatalf("node, node/middleware or node/client needs %s", dep)
		}
	}
}

// ruleFor returns the longest prefix in allowed that a package is under, or "".
func ruleFor(allowed map[string][]string, path string) string {
	best := ""
	for prefix := range allowed {
		if (path == prefix || strings.HasPrefix(path, prefix+"/")) && len(prefix) > len(best) {
			best = prefix
		}
	}
	return best
}

// TestNoTestsInTheBinary holds that the binary links nothing that is made for tests.
func TestNoTestsInTheBinary(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", module+"cmd/edgelimit").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range strings.Fields(string(out)) {
		ours := strings.HasPrefix(dep, module)
		if dep == "testing" || ours && (strings.HasSuffix(dep, "test") || strings.HasSuffix(dep, "testkit")) {
			t.Errorf("the binary links %s", dep)
		}
	}
}
