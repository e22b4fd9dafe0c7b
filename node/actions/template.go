package actions

import (
	"fmt"
	"strings"
)

// A template is a path in which {name} is the segment to read, * any segment, and * at the end any rest.

// checkTemplate returns what is wrong with a template.
func checkTemplate(t string) error {
	captures := 0
	for _, segment := range strings.Split(t, "/") {
		if isCapture(segment) {
			captures++
		} else if strings.ContainsAny(segment, "{}") || strings.Contains(segment, "*") && segment != "*" {
			return fmt.Errorf("template %q: %q: {name} and * are whole segments", t, segment)
		}
	}
	if !strings.HasPrefix(t, "/") || captures != 1 {
		return fmt.Errorf("template %q: want a path with one {name} in it, as in /tenants/{tenant}/*", t)
	}
	return nil
}

func isCapture(segment string) bool {
	return len(segment) > 2 && segment[0] == '{' && segment[len(segment)-1] == '}'
}

// readTemplate adds what the template names in each reading of the path.
func (v *view) readTemplate(template string, out *values) {
	var paths values
	for i := range v.targets[:v.known] {
		v.targets[i].readPath(v.exactCase, &paths)
	}
	for i := range paths.n {
		out.add(capture(template, paths.list[i], v.exactCase))
	}
	out.ambiguous = out.ambiguous || paths.ambiguous && out.n > 0
	out.excess = out.excess || paths.excess
}

// capture is the segment of the path that the template names; nothing if the path does not match.
func capture(t, path string, exactCase bool) (value string) {
	for {
		var want, have string
		var more, rest bool
		want, t, more = strings.Cut(t, "/")
		have, path, rest = strings.Cut(path, "/")
		switch {
		case isCapture(want):
			value = have
		case want == "*" && !more:
			return value
		case want != "*" && want != have && (exactCase || !strings.EqualFold(want, have)):
			return ""
		}
		if more != rest {
			return ""
		}
		if !more {
			return value
		}
	}
}
