package actions

import (
	"fmt"
	"strings"
)

// A template is a path in which {name} stands for the segment that is the value, * for any segment, and * at the end for any rest.

// checkTemplate says what is wrong with a template.
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

// template is the segment of the path that the template names.
func template(v *view, t string) (value string, ok bool) {
	path := v.path
	for {
		var want, have string
		var more, rest bool
		want, t, more = strings.Cut(t, "/")
		have, path, rest = strings.Cut(path, "/")
		switch {
		case isCapture(want):
			value = have
		case want == "*" && !more:
			return value, value != ""
		case want != "*" && want != have:
			return "", false
		}
		if more != rest {
			return "", false
		}
		if !more {
			return value, value != ""
		}
	}
}
