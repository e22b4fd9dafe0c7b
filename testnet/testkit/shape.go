package testkit

import (
	"regexp"
	"strings"
)

var (
	digest   = regexp.MustCompile(`\b(?:[0-9a-f]{16}|[0-9a-f]{8})\b`)
	build    = regexp.MustCompile(`, [^,]+, up `)
	figure   = regexp.MustCompile(`(^|[^\w-])(?:[-+]?\d[\d.:/-]*(?:(?:ms|s|m|h)\b|(?:h|m)\d[\d.hms]*)?|-(?: |$))`)
	duration = regexp.MustCompile(`[-+]?\d[\d.]* +(?:days?|h|min|s|ms|µs)\b(?: +\d[\d.]* +(?:h|min|s)\b)*`)
	many     = regexp.MustCompile(`\b(N [a-z]+)s\b`)
)

// shape is a line without what differs from run to run: figures, times, fingerprints, versions, the width of columns.
// The figure of a name, such as us-1, stays.
func shape(line string) string {
	line = build.ReplaceAllString(line, ", V, up ")
	line = digest.ReplaceAllString(line, "H")
	line = strings.Join(strings.Fields(line), "  ") // so that dashes side by side are found
	line = duration.ReplaceAllString(line, " N ")
	line = figure.ReplaceAllString(line, "$1 N ")
	return many.ReplaceAllString(strings.Join(strings.Fields(line), " "), "$1")
}

// Lacking returns the first line of what is wanted that an output has not, in its order; empty if it has them all. Of
// what a program prints it compares the words, not figures, times, fingerprints, versions and the width of columns.
func Lacking(output, want string) string {
	lines := strings.Split(output, "\n")
	for w := range strings.Lines(want) {
		w = strings.TrimSpace(w)
		for len(lines) > 0 && shape(lines[0]) != shape(w) {
			lines = lines[1:]
		}
		if len(lines) > 0 {
			lines = lines[1:] // each stands for one
		} else if w != "" {
			return w
		}
	}
	return ""
}
