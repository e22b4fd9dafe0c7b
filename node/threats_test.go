package node

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The threat model names tests and metrics that exist, each test with its package, and is short.
func TestThreatModelIsHeld(t *testing.T) {
	page := string(read(t, "THREATS.md"))
	sources := make(map[string]string) // the tests of each package
	held := regexp.MustCompile("`([a-z/]+)\\.(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(page, -1)
	for _, named := range held {
		dir, test := named[1], named[2]
		if sources[dir] == "" {
			sources[dir] = testsOf(t, filepath.Join("..", dir))
		}
		if !strings.Contains(sources[dir], "\nfunc "+test+"(t *testing.T)") {
			t.Errorf("%s has no %s", dir, test)
		}
	}
	if all := regexp.MustCompile(`\bTest[A-Z]`).FindAllString(page, -1); len(held) != len(all) || len(held) < 50 {
		t.Errorf("of %d tests %d are named with their package", len(all), len(held))
	}
	metrics := documentedMetrics(t) // which TestMetricsAreDocumented compares with those exported
	shown := regexp.MustCompile(`edgelimit_[a-z_]+`).FindAllString(page, -1)
	for _, name := range shown {
		if _, ok := metrics[name]; !ok {
			t.Errorf("there is no metric %s", name)
		}
	}
	if len(shown) < 10 {
		t.Errorf("only %d metrics are named", len(shown))
	}
	lines := strings.Split(strings.TrimSpace(page), "\n")
	for i, line := range lines {
		if columns := len([]rune(line)); columns > 120 {
			t.Errorf("line %d has %d columns: want 120 at most", i+1, columns)
		}
	}
	if len(lines) > 150 {
		t.Errorf("the page has %d lines: want 150 at most", len(lines))
	}
}

// testsOf returns the text of a folder's test files.
func testsOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", dir, err)
	}
	var text strings.Builder
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(source)
	}
	return text.String()
}
