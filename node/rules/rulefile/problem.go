package rulefile

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/edgelimit/edgelimit/node/rules"
)

// Error is one problem of a rule file. [Parse] and [Load] join all of them; errors.AsType finds the first.
type Error struct {
	File   string
	Line   int // from 1
	Column int // from 1, in characters
	Reason string
	// Link is the target of a file that is a link out of its directory.
	Link string
	// Source is the line, without its end, and shortened where it is very long.
	Source string
}

// Error returns "file:line:column: reason", with the target of a link.
func (e *Error) Error() string {
	leads := ""
	if e.Link != "" {
		leads = fmt.Sprintf(" (the file is a link that leads to %s)", e.Link)
	}
	return fmt.Sprintf("%s:%d:%d: %s%s", e.File, e.Line, e.Column, e.Reason, leads)
}

// Problems splits what [Parse] or [Load] returned: one error for each problem, an *Error where it has a place in a
// file.
func Problems(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// maxProblems is the maximum number of reported problems of a file, which may have millions.
const maxProblems = 1000

// Excerpt returns the line with a caret under the place, as two lines; "" without a line.
func (e *Error) Excerpt() string {
	before := []rune(e.Source)
	if e.Source == "" || e.Column-1 > len(before) {
		return ""
	}
	before = before[:e.Column-1]
	for i, c := range before {
		if c != '\t' { // keeps the width
			before[i] = ' '
		}
	}
	return e.Source + "\n" + string(before) + "^"
}

// add reports a problem at a node, once: nodes under several aliases are read several times.
func (p *parser) add(at *yaml.Node, format string, args ...any) {
	p.found++
	e := p.at(at, fmt.Sprintf(format, args...))
	if p.stopped || p.seen[*e] {
		return
	}
	p.seen[*e] = true
	p.problems = append(p.problems, e)
	if len(p.problems) == maxProblems {
		p.stop(at, "%d problems are enough: fix these first, the rest of the file was not read", maxProblems)
	}
}

// warn reports what is read although it is probably not meant, once.
func (p *parser) warn(at *yaml.Node, format string, args ...any) {
	e := p.at(at, fmt.Sprintf(format, args...))
	switch {
	case p.stopped || p.warned[*e] || len(p.warned) >= maxProblems:
		return
	case len(p.warned) == maxProblems-1:
		e.Reason = fmt.Sprintf("%d warnings are enough: there may be more after this line", maxProblems)
	}
	p.warned[*e] = true
	p.warnings = append(p.warnings, e)
}

func (p *parser) at(n *yaml.Node, reason string) *Error {
	return &Error{File: p.from.file, Link: p.from.link, Line: n.Line, Column: n.Column, Reason: reason}
}

// stop reports a problem after which the file is not read any further.
func (p *parser) stop(at *yaml.Node, format string, args ...any) {
	if p.stopped {
		return
	}
	p.stopped = true
	p.problems = append(p.problems, p.at(at, fmt.Sprintf(format, args...)))
}

// ruleKey matches keys of which every rule file has one.
var ruleKey = regexp.MustCompile(`(?m)(?:^|[\s{,\-"'])(?:domain|descriptors|rule_id)["']?\s*:`)

// noRules is the reason of a file without rules.
const noRules = "there is no domain in the file, nor a rule: it must hold at least one, or be removed"

// sorted returns the problems in the order of lines. A linked file without rules gets a single one, which quotes
// nothing: whoever can place links among the rules may have no right to read their targets, such as a password file.
func (p *parser) sorted() []error {
	if p.from.link != "" && len(p.problems) > 0 && !ruleKey.Match(p.from.data) {
		return []error{p.at(&yaml.Node{Line: 1, Column: 1}, noRules)}
	}
	return p.quoted(p.problems)
}

// quoted returns errors in the order of lines, with the lines.
func (p *parser) quoted(found []*Error) []error {
	slices.SortStableFunc(found, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	errs := make([]error, len(found))
	lines := lineReader{rest: p.from.data}
	for i, e := range found {
		e.Source = lines.line(e.Line)
		errs[i] = e
	}
	return errs
}

// lineReader finds lines by ascending numbers.
type lineReader struct {
	rest []byte // from line at on
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

// unknown returns the message for an unknown word, with the nearest known one, or else all. kind and where describe the
// word.
func unknown(kind, word, where string, known []string) string {
	if guess := rules.Nearest(word, known); guess != "" {
		return fmt.Sprintf("unknown %s %.32q in %s: did you mean %q?", kind, word, where, guess)
	}
	return fmt.Sprintf("unknown %s %.32q in %s (known here: %s)", kind, word, where, strings.Join(known, ", "))
}
