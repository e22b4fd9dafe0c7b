package parsers

import (
	_ "embed"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Who reads what is plain of a form.
const (
	none    = '-'
	all     = '=' // of a target: path and query
	path    = 'p'
	query   = 'q'
	refuses = '!'
)

// recording has the readings of all forms, recorded those of when the program was built: a line of the servers' names,
// then one for each form with a sign for each server.
const recording = "testdata/readings.txt"

//go:embed testdata/readings.txt
var recorded string

// Recorded is a form and what each of Servers reads of it.
type Recorded struct {
	Form
	Read []byte
}

// layer is a layer with its value in the plain request, and by which signs servers read that.
type layer struct {
	key, value string
	source     Source
	reads      func(sign byte) bool
}

var layers = []layer{
	{"path", plainPath, Target, readsPath},
	{"tenant", "acme", Target, readsPath},
	{"token", plainToken, Target, readsQuery},
	{"session", plainSession, Cookie, readsAll},
	{"sub", "ann", Bearer, readsAll},
	{"api_key", plainKey, Header, readsAll},
}

// Unread are the keys of the form's layers that no server reads as in the plain request.
func (r *Recorded) Unread() (keys []string) {
	for _, l := range layers {
		if l.source == r.Source && !slices.ContainsFunc(r.Read, l.reads) {
			keys = append(keys, l.key)
		}
	}
	return keys
}

func readsAll(sign byte) bool { return sign == all }

func readsPath(sign byte) bool { return sign == all || sign == path }

func readsQuery(sign byte) bool { return sign == all || sign == query }

// signOf is the sign of what a server read.
func (f Form) signOf(got reading, ok bool) byte {
	if !ok {
		return refuses
	}
	has := slices.Contains[[]string]
	switch f.Source {
	case Cookie:
		return sign(has(got.Cookie, plainSession))
	case Bearer:
		return sign(slices.ContainsFunc(got.Token, func(s string) bool { return strings.HasPrefix(s, plainBearer) }))
	case Header:
		return sign(has(got.Header, plainKey))
	}
	return targetSign(has(got.Path, plainPath), has(got.Query, plainToken))
}

func sign(read bool) byte {
	if read {
		return all
	}
	return none
}

func targetSign(readsPath, readsQuery bool) byte {
	switch {
	case readsPath && readsQuery:
		return all
	case readsPath:
		return path
	case readsQuery:
		return query
	}
	return none
}

// Recording reads what is recorded.
func Recording() ([]Recorded, error) {
	lines := strings.Split(strings.TrimSuffix(recorded, "\n"), "\n")
	if lines[0] != heading() {
		return nil, fmt.Errorf("%s: it begins with %q, want %q", recording, lines[0], heading())
	}
	var all []Recorded
	for i, line := range lines[1:] {
		read, text, _ := strings.Cut(line, " ")
		f, err := parseForm(text)
		if err != nil || len(read) != len(Servers) {
			return nil, fmt.Errorf("%s:%d: %w", recording, i+2, err)
		}
		all = append(all, Recorded{f, []byte(read)})
	}
	return all, nil
}

// heading are the servers' names.
func heading() string {
	var names []string
	for _, s := range Servers {
		names = append(names, s.Name)
	}
	return strings.Join(names, " ")
}

// record writes a recording.
func record(all []Recorded) error {
	var b strings.Builder
	fmt.Fprintln(&b, heading())
	for _, r := range all {
		fmt.Fprintf(&b, "%s %s\n", r.Read, r.Form)
	}
	return os.WriteFile(recording, []byte(b.String()), 0o644)
}
