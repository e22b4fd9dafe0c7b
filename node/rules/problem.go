package rules

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Error is one problem of a rule file. [Parse] and [Load] join all of them; errors.AsType finds the first.
type Error struct {
	File   string
	Line   int // from 1
	Column int // from 1, in characters
	Reason string
	// Source is the line, without its end, and shortened where it is very long.
	Source string
}

// Error returns "file:line:column: reason".
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Reason)
}

// Problems takes apart what [Parse] or [Load] returned: one error for each problem, an *Error where it has a place in a file.
func Problems(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// maxProblems is how many problems of a file are reported: nobody reads more, and a file may hold millions.
const maxProblems = 1000

// Excerpt returns the line with a caret under the place, as two lines; empty where there is nothing to show.
func (e *Error) Excerpt() string {
	before := []rune(e.Source)
	if e.Source == "" || e.Column-1 > len(before) {
		return ""
	}
	before = before[:e.Column-1]
	for i, c := range before {
		if c != '\t' { // what is as wide as before
			before[i] = ' '
		}
	}
	return e.Source + "\n" + string(before) + "^"
}

// problems gathers what is wrong with one file.
type problems struct {
	file    string
	data    []byte
	list    []*Error
	seen    map[Error]bool
	stopped bool // there is no point in reading on
}

// add notes a problem at a node, once: what stands under several aliases is met several times.
func (ps *problems) add(at *yaml.Node, format string, args ...any) {
	e := Error{File: ps.file, Line: at.Line, Column: at.Column, Reason: fmt.Sprintf(format, args...)}
	if ps.stopped || ps.seen[e] {
		return
	}
	if ps.seen == nil {
		ps.seen = make(map[Error]bool)
	}
	ps.seen[e] = true
	ps.list = append(ps.list, &e)
	if len(ps.list) == maxProblems {
		ps.stop(at, "%d problems are enough: mend these first, the rest of the file was not looked at", maxProblems)
	}
}

// stop notes a problem after which the file is not read any further.
func (ps *problems) stop(at *yaml.Node, format string, args ...any) {
	if ps.stopped {
		return
	}
	ps.stopped = true
	ps.list = append(ps.list, &Error{File: ps.file, Line: at.Line, Column: at.Column, Reason: fmt.Sprintf(format, args...)})
}

// sorted returns the problems from the top of the file to its end.
func (ps *problems) sorted() []error {
	slices.SortStableFunc(ps.list, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	errs := make([]error, len(ps.list))
	lines := lineReader{rest: ps.data}
	for i, e := range ps.list {
		e.Source = lines.line(e.Line)
		errs[i] = e
	}
	return errs
}

// lineReader finds lines whose numbers never decrease.
type lineReader struct {
	rest []byte // from the line on that at says
	at   int    // from 0
}

// maxSource is how much of a line is shown, in bytes.
const maxSource = 500

func (r *lineReader) line(number int) string {
	for ; r.at < number-1; r.at++ {
		_, after, found := bytes.Cut(r.rest, []byte("\n"))
		if !found {
			return ""
		}
		r.rest = after
	}
	line, _, _ := bytes.Cut(r.rest, []byte("\n"))
	line = bytes.TrimPrefix(bytes.TrimSuffix(line, []byte("\r")), []byte("\ufeff"))
	return strings.ToValidUTF8(string(line[:min(len(line), maxSource)]), "?")
}

// unknown says that a word is none of the known ones, and which of them it may have been meant to be, or else all of them. kind and
// where say what the word stands for.
func unknown(kind, word, where string, known []string) string {
	if guess := nearest(word, known); guess != "" {
		return fmt.Sprintf("unknown %s %.80q in %s: did you mean %q?", kind, word, where, guess)
	}
	return fmt.Sprintf("unknown %s %.80q in %s (known here: %s)", kind, word, where, strings.Join(known, ", "))
}

// nearest returns the known word of which word is most probably a misspelling, "" when there is none: one slip in every
// four letters, but at least one.
func nearest(word string, known []string) string {
	if len(word) > 64 {
		return ""
	}
	word = strings.ToLower(word)
	best, least := "", len(word)/4+2
	for _, k := range known {
		if d := distance(word, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance counts the slips between two words: letters left out, added, mistaken, or swapped with their neighbour.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			mistaken := last[j-1]
			if a[i-1] != b[j-1] {
				mistaken++
			}
			row[j] = min(mistaken, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
