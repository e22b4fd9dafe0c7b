package rules

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestFullNames(t *testing.T) {
	tests := []struct {
		entry Entry
		want  string
	}{
		{Entry{"remote_address", ""}, "remote_address"},
		{Entry{"path", "/login"}, "path=/login"},
		{Entry{"path", "/"}, "path=/"},
		{Entry{"path", "/api/v1"}, "path=/api%2Fv1"},
		{Entry{"path", "//"}, "path=/%2F"},
		{Entry{"a/b", "c=d"}, "a%2Fb=c=d"},
		{Entry{"a=b", ""}, "a%3Db"},
		{Entry{"percent", "100%"}, "percent=100%25"},
		{Entry{"line\n", "\x7f\t"}, "line%0A=%7F%09"},
		{Entry{"straße", "münchen 1"}, "straße=münchen 1"},
	}
	for _, tt := range tests {
		if got := Component(tt.entry); got != tt.want {
			t.Errorf("%q is written as %s, want %s", tt.entry, got, tt.want)
		}
	}
}

// Two rules with the same full name would share their counts.
func TestFullNamesAreUnique(t *testing.T) {
	text := rapid.StringOfN(rapid.RuneFrom([]rune("/=%2FaD")), 0, 4, -1)
	entry := rapid.Custom(func(t *rapid.T) Entry { return Entry{"k" + text.Draw(t, "key"), text.Draw(t, "value")} })
	where := rapid.Custom(func(t *rapid.T) Place {
		domain := text.Draw(t, "domain")
		at := Place{Domain: domain, FullName: Component(Entry{Key: domain})}
		for _, e := range rapid.SliceOfN(entry, 1, 3).Draw(t, "path") {
			at = at.Below(e, Step{})
		}
		return at
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := where.Draw(t, "a"), where.Draw(t, "b")
		if same := a.Domain == b.Domain && slices.Equal(a.Entries, b.Entries); same != (a.FullName == b.FullName) {
			t.Fatalf("%q %q is %s, and %q %q is %s", a.Domain, a.Entries, a.FullName, b.Domain, b.Entries, b.FullName)
		}
	})
}

func TestOpenKeys(t *testing.T) {
	s := mustParse(t, `
domain: d
descriptors:
  - key: a
    rate_limit: {unlimited: true}
    descriptors:
      - key: b
        value: x
        rate_limit: {unlimited: true}
        descriptors: [{key: c, rate_limit: {unlimited: true}}]
  - key: a
    value: x
    rate_limit: {unlimited: true}
`)
	want := map[string][]string{"d/a": {"a"}, "d/a/b=x": {"a"}, "d/a/b=x/c": {"a", "c"}, "d/a=x": {}}
	for _, r := range s.Rules() {
		if got := r.OpenKeys(); !slices.Equal(got, want[r.FullName]) {
			t.Errorf("%s has the open keys %v, want %v", r, got, want[r.FullName])
		}
	}
}

// Siblings are built from the same path; none may write into that of another.
func TestPathsAreNotShared(t *testing.T) {
	top := Place{Domain: "d", FullName: "d"}.Below(Entry{"a", ""}, Step{}).
		Below(Entry{"b", ""}, Step{}).
		Below(Entry{"c", ""}, Step{})
	x, y := top.Below(Entry{"x", ""}, Step{}), top.Below(Entry{"y", ""}, Step{})
	if x.Entries[3].Key != "x" || y.Entries[3].Key != "y" {
		t.Errorf("paths are %v and %v", x.Entries, y.Entries)
	}
}
