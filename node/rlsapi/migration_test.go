package rlsapi_test

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/rlsapi"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// names are the words in backticks of a cell.
func names(cell string) (all []string) {
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	return all
}

// rows are those of the table under a heading, as their cells.
func rows(t *testing.T, document, heading string) (all [][]string) {
	t.Helper()
	_, part, found := strings.Cut(document, "\n## "+heading+"\n")
	if !found {
		t.Fatalf("no heading %s", heading)
	}
	part, _, _ = strings.Cut(part, "\n## ")
	for line := range strings.Lines(part) {
		if strings.HasPrefix(line, "| `") {
			all = append(all, strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | "))
		}
	}
	return all
}

// setting reports whether the configuration has a setting of a name, as redis.url.
func setting(typ reflect.Type, name string) bool {
	first, rest, deeper := strings.Cut(name, ".")
	for i := range typ.NumField() {
		if f := typ.Field(i); f.Tag.Get("yaml") == first && first != "-" {
			return !deeper || f.Type.Kind() == reflect.Struct && setting(f.Type, rest)
		}
	}
	return false
}

// What MIGRATION.md calls a setting or a metric of ours is one.
func TestMigration(t *testing.T) {
	text, err := os.ReadFile("MIGRATION.md")
	testkit.Must(t, err)
	settings, documented := rows(t, string(text), "Settings"), make(map[string]bool)
	for _, row := range settings {
		if len(row) < 2 {
			t.Fatalf("row %q", row)
		}
		for _, theirs := range names(row[0]) {
			if documented[theirs] || theirs != strings.ToUpper(theirs) {
				t.Errorf("%s is documented twice, or is no variable", theirs)
			}
			documented[theirs] = true
		}
		ours := names(row[1])
		if len(ours) == 0 && strings.TrimSpace(row[1]) != "-" {
			t.Errorf("row %q", row)
		}
		for _, name := range ours {
			if !setting(reflect.TypeFor[node.Config](), name) {
				t.Errorf("there is no setting %s", name)
			}
		}
	}
	for _, row := range settings {
		if !strings.Contains(row[0], "GRPC_MAX_CONNECTION_AGE") {
			continue
		}
		for _, want := range []string{
			fmt.Sprintf("%.0f minutes a connection", rlsapi.MaxAge.Minutes()), fmt.Sprintf("%.0f seconds",
				rlsapi.AgeGrace.Seconds()),
			fmt.Sprintf("%.0f minutes. ", rlsapi.MaxIdle.Minutes()),
		} {
			if !strings.Contains(row[2], want) {
				t.Errorf("the row of connections does not say %q: %s", want, row[2])
			}
		}
	}
	if len(documented) < 60 {
		t.Errorf("only %d of their settings are documented", len(documented))
	}
	var source strings.Builder
	for _, name := range []string{"../metrics.go", "../telemetry/metrics.go", "../telemetry/latencies.go"} {
		text, err := os.ReadFile(name)
		testkit.Must(t, err)
		source.Write(text)
	}
	flat := strings.Join(strings.Fields(source.String()), "")
	metrics := rows(t, string(text), "Metrics")
	for _, row := range metrics {
		for _, name := range names(row[1]) {
			if !strings.Contains(flat, `("`+name+`"`) && !strings.Contains(flat, `"edgelimit_`+name+`"`) {
				t.Errorf("there is no metric %s", name)
			}
		}
	}
	if len(metrics) < 12 {
		t.Errorf("only %d rows of metrics", len(metrics))
	}
}
