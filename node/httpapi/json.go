package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth caps the nesting of values that are skipped. A batch needs six levels; the rest lets a stray value be named
// for what it is.
const maxDepth = 32

// jsonReader reads JSON strictly: an object has exactly the documented fields, each at most once and of its type.
// encoding/json would take a field in any letter case and twice.
type jsonReader struct {
	dec  jsontext.Decoder
	src  bytes.Buffer
	text string // the same as src; decoded strings are parts of it
}

// jsonOptions leave duplicates to object, which names them, and make U+FFFD of a lone surrogate's escape as
// encoding/json does.
var jsonOptions = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// reset starts to read b, of which text is a copy.
func (j *jsonReader) reset(b []byte, text string) {
	j.src, j.text = *bytes.NewBuffer(b), text
	j.dec.Reset(&j.src, jsonOptions...)
}

// object calls member for each member of an object, whose name is one of fields, to read its value.
func (j *jsonReader) object(what string, fields []string, member func(name string) error) error {
	if err := j.open('{', what, "an object"); err != nil {
		return err
	}
	seen := 0
	for j.dec.PeekKind() != '}' {
		raw, err := j.scalar()
		if err != nil {
			return err
		}
		name, at := unquote(raw), int(j.dec.InputOffset())-len(raw)
		i := slices.Index(fields, name)
		if i < 0 {
			return badRequest("%s has no field %.64q (at byte %d): it may have %s", what, name, at,
				strings.Join(fields, ", "))
		}
		if seen&(1<<i) != 0 {
			return badRequest("%s has the field %s twice (at byte %d): give it once", what, name, at)
		}
		seen |= 1 << i
		if err := member(name); err != nil {
			return err
		}
	}
	_, err := j.dec.ReadToken()
	return err
}

// array calls item for each item of an array, to read it.
func (j *jsonReader) array(what string, item func() error) error {
	if err := j.open('[', what, "an array"); err != nil {
		return err
	}
	for j.dec.PeekKind() != ']' {
		if err := item(); err != nil {
			return err
		}
	}
	_, err := j.dec.ReadToken()
	return err
}

func (j *jsonReader) open(bracket jsontext.Kind, what, want string) error {
	if j.dec.PeekKind() != bracket {
		return j.mismatch(what, want)
	}
	_, err := j.dec.ReadToken()
	return err
}

// scalar reads a value that is no object or array, and returns it as it stands.
func (j *jsonReader) scalar() (raw string, err error) {
	v, err := j.dec.ReadValue()
	if err != nil {
		return "", badJSON(err)
	}
	end := int(j.dec.InputOffset())
	return j.text[end-len(v) : end], nil
}

func (j *jsonReader) stringInto(what string, dst *string) error {
	if j.dec.PeekKind() != '"' {
		return j.mismatch(what, "a string")
	}
	raw, err := j.scalar()
	if err == nil {
		*dst = unquote(raw)
	}
	return err
}

func unquote(raw string) string {
	if strings.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	var unquoted string
	if err := json.Unmarshal([]byte(raw), &unquoted); err != nil { // jsontext would allocate for each lone surrogate
		panic(err) // it is valid: it cannot fail
	}
	return unquoted
}

func (j *jsonReader) uintInto(what string, dst *uint64) error {
	if j.dec.PeekKind() != '0' {
		return j.mismatch(what, "a number")
	}
	raw, err := j.scalar()
	if err != nil {
		return err
	}
	if *dst, err = strconv.ParseUint(raw, 10, 64); err != nil {
		return badRequest("%s is %.32s (at byte %d): give a whole number, not negative, in plain digits", what, raw,
			int(j.dec.InputOffset())-len(raw))
	}
	return nil
}

func (j *jsonReader) boolInto(what string, dst *bool) error {
	if kind := j.dec.PeekKind(); kind != 't' && kind != 'f' {
		return j.mismatch(what, "true or false")
	}
	raw, err := j.scalar()
	*dst = raw == "true"
	return err
}

// skip reads a value of any kind, and returns where it stands.
func (j *jsonReader) skip() (begin, end int, err error) {
	j.dec.PeekKind()
	begin, outside := j.next(), j.dec.StackDepth()
	for {
		if _, err := j.dec.ReadToken(); err != nil {
			return 0, 0, badJSON(err)
		}
		switch depth := j.dec.StackDepth(); {
		case depth > maxDepth:
			return 0, 0, badRequest("the body is nested more than %d deep: send a check as documented", maxDepth)
		case depth == outside:
			return begin, int(j.dec.InputOffset()), nil
		}
	}
}

// end makes sure that nothing follows.
func (j *jsonReader) end() error {
	rest := strings.TrimLeft(j.text[j.dec.InputOffset():], " \t\r\n")
	if rest == "" {
		return nil
	}
	return badRequest("the body is not JSON: it goes on at byte %d: send one JSON object", len(j.text)-len(rest))
}

// next returns the offset of the next value.
func (j *jsonReader) next() int {
	at := int(j.dec.InputOffset())
	return len(j.text) - len(strings.TrimLeft(j.text[at:], " \t\r\n,:"))
}

// mismatch refuses the next value, which is not of the kind that is wanted.
func (j *jsonReader) mismatch(what, want string) error {
	got := ""
	switch j.dec.PeekKind() {
	case '{':
		got = "an object"
	case '[':
		got = "an array"
	case '"':
		got = "a string"
	case '0':
		got = "a number"
	case 't':
		got = "true"
	case 'f':
		got = "false"
	case 'n':
		got = "null"
	default:
		_, err := j.dec.ReadToken()
		return badJSON(err)
	}
	return badRequest("%s is %s (at byte %d): give %s", what, got, j.next(), want)
}

// badJSON says where the body ceases to be JSON.
func badJSON(err error) error {
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return badRequest("the body is not JSON: %v at byte %d: send one JSON object", syntax.Err, syntax.ByteOffset)
	}
	return badRequest("the body is not JSON: %v: send one JSON object", io.ErrUnexpectedEOF)
}
