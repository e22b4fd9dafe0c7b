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

	"github.com/edgelimit/edgelimit/node/rules"
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

// cost is a number that is read as all APIs read costs: one beyond 64 bits is the largest. Other numbers end there.
type cost uint64

// field is a member that an object may have. Its value is read into dst: a *string, *uint64, *cost or *bool, or by a
// func() error.
type field struct {
	name string
	dst  any
}

// reset starts to read b, of which text is a copy.
func (j *jsonReader) reset(b []byte, text string) {
	j.src, j.text = *bytes.NewBuffer(b), text
	j.dec.Reset(&j.src, jsonOptions...)
}

// object reads an object.
func (j *jsonReader) object(what string, fields ...field) error {
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
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			known := ""
			for _, f := range fields {
				known += ", " + f.name
			}
			return badRequest("%s has no field %.64q (at byte %d): it may have %s", what, name, at, known[len(", "):])
		}
		if seen&(1<<i) != 0 {
			return badRequest("%s has the field %s twice (at byte %d): give it once", what, name, at)
		}
		seen |= 1 << i
		if err := j.value(name, fields[i].dst); err != nil {
			return err
		}
	}
	_, err := j.dec.ReadToken()
	return err
}

// value reads the value of a field.
func (j *jsonReader) value(what string, dst any) error {
	kinds, want := `"`, "a string"
	switch dst := dst.(type) {
	case func() error:
		return dst()
	case *uint64, *cost:
		kinds, want = "0", "a number"
	case *bool:
		kinds, want = "tf", "true or false"
	}
	if strings.IndexByte(kinds, byte(j.dec.PeekKind())) < 0 {
		return j.mismatch(what, want)
	}
	raw, err := j.scalar()
	if err != nil {
		return err
	}
	switch dst := dst.(type) {
	case *string:
		*dst = unquote(raw)
	case *bool:
		*dst = raw == "true"
	case *uint64:
		*dst, err = strconv.ParseUint(raw, 10, 64)
	case *cost:
		var n uint64
		n, err = rules.ParseCost(raw)
		*dst = cost(n)
	}
	if err != nil {
		return badRequest("%s is %.32s (at byte %d): give a whole number, not negative, in plain digits", what, raw,
			int(j.dec.InputOffset())-len(raw))
	}
	return nil
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

// skip reads a value of any kind, and returns where it stands.
func (j *jsonReader) skip() (span, error) {
	j.dec.PeekKind()
	begin, outside := j.next(), j.dec.StackDepth()
	for {
		if _, err := j.dec.ReadToken(); err != nil {
			return span{}, badJSON(err)
		}
		switch depth := j.dec.StackDepth(); {
		case depth > maxDepth:
			return span{}, badRequest("the body is nested more than %d deep: send a check as documented", maxDepth)
		case depth == outside:
			return span{begin, int(j.dec.InputOffset())}, nil
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

var kindNames = map[jsontext.Kind]string{
	'{': "an object", '[': "an array", '"': "a string", '0': "a number", 't': "true", 'f': "false", 'n': "null",
}

// mismatch refuses the next value, which is not of the kind that is wanted.
func (j *jsonReader) mismatch(what, want string) error {
	got, known := kindNames[j.dec.PeekKind()]
	if !known {
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
