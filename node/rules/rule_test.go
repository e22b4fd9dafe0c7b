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
		if got := component(tt.entry); got != tt.want {
			t.Errorf("%q is written as %s, want %s", tt.entry, got, tt.want)
		}
	}
}

// Two rules with the same full name would share their counts.
func TestFullNamesAreUnique(t *testing.T) {
	text := rapid.StringOfN(rapid.RuneFrom([]rune("/=%2FaD")), 0, 4, -1)
	entry := rapid.Custom(func(t *rapid.T) Entry { return Entry{"k" + text.Draw(t, "key"), text.Draw(t, "value")} })
	where := rapid.Custom(func(t *rapid.T) place {
		domain := text.Draw(t, "domain")
		at := place{domain: domain, fullName: escape(domain, "/=")}
		for _, e := range rapid.SliceOfN(entry, 1, 3).Draw(t, "path") {
			at = at.below(e, step{})
		}
		return at
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := where.Draw(t, "a"), where.Draw(t, "b")
		if same := a.domain == b.domain && slices.Equal(a.path, b.path); same != (a.fullName == b.fullName) {
			t.Fatalf("%q %q is %s, and %q %q is %s", a.domain, a.path, a.fullName, b.domain, b.path, b.fullName)
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
	top := place{node: &node{}, domain: "d", fullName: "d"}.below(Entry{"a", ""}, step{}).below(Entry{"b", ""}, step{}).below(Entry{"c", ""}, step{})
	x, y := top.below(Entry{"x", ""}, step{}), top.below(Entry{"y", ""}, step{})
	if x.path[3].Key != "x" || y.path[3].Key != "y" {
		t.Errorf("paths are %v and %v", x.path, y.path)
	}
}
