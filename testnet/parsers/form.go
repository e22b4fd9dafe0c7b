package parsers

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/edgelimit/edgelimit/testnet/evasion"
)

// Source is the part of the plain request that a form varies.
type Source byte

const (
	Target Source = 'T' // path and query
	Cookie Source = 'C'
	Bearer Source = 'B'
	Header Source = 'H'
)

// The values of the plain request.
const (
	plainPath    = "/tenants/acme/login"
	plainTarget  = plainPath + "?page=2&token=t1"
	plainToken   = "t1"
	plainSession = "s1"
	plainKey     = "k1"
)

// plainBearer is the plain request's token up to its signature. Who changes any of that has no valid token.
var plainBearer = func() string {
	token := strings.TrimPrefix(evasion.Bearer, "Bearer ")
	return token[:strings.LastIndexByte(token, '.')+1]
}()

// names are the headers of the sources in the plain request.
var names = map[Source]string{Cookie: "Cookie", Bearer: "Authorization", Header: "X-Api-Key"}

// Form is the plain request with one source in another form: a target, or lines of the header.
type Form struct {
	Source Source
	Text   string // lines end with \n, but the last
}

// String is how testdata/readings.txt has it.
func (f Form) String() string { return fmt.Sprintf("%c %s", f.Source, strconv.QuoteToASCII(f.Text)) }

// parseForm reads what String writes.
func parseForm(text string) (f Form, err error) {
	source, quoted, _ := strings.Cut(text, " ")
	if len(source) != 1 {
		return f, fmt.Errorf("%q: want a source and a text", text)
	}
	f.Source = Source(source[0])
	f.Text, err = strconv.Unquote(quoted)
	return f, err
}

// Sendable reports whether the form can be sent: nothing of it ends the line, and no line continues the one before.
func (f Form) Sendable() bool {
	if f.Source == Target {
		return f.Text != "" && !strings.ContainsAny(f.Text, "\r\n")
	}
	for line := range strings.SplitSeq(f.Text, "\n") {
		if line == "" || line[0] == ' ' || line[0] == '\t' || strings.Contains(line, "\r") {
			return false
		}
	}
	return true
}

// Variation is the form as a request.
func (f Form) Variation() evasion.Variation {
	v := evasion.Plain()
	v.Name = f.String()
	if f.Source == Target {
		v.Target = f.Text
		return v
	}
	at := slices.IndexFunc(v.Lines, func(line string) bool { return strings.HasPrefix(line, names[f.Source]+":") })
	v.Lines = slices.Replace(v.Lines, at, at+1, strings.Split(f.Text, "\n")...)
	return v
}
