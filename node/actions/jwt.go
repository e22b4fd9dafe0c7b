package actions

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// readJWT adds a claim of the bearer token: a text or a number, or several of a list. It does not verify the signature:
// a proxy before the node or the server behind it rejects forged tokens.
//
// A bearer token without dots is no JWT, and the claim is missing. One with dots that cannot be read is unreadable.
func (v *view) readJWT(claim string, out *values) {
	if out.tooLong(v.header["Authorization"]...) {
		return
	}
	tokens := 0
	for _, line := range v.header["Authorization"] {
		bearer := false
		for field := range strings.FieldsFuncSeq(line, separates) {
			if bearer && strings.IndexByte(field, '.') >= 0 {
				if tokens++; tokens > MaxValues {
					out.excess = true
					return
				}
				out.addClaim(field, claim)
			}
			// PHP's programs often find it anywhere; a token may end in it as well.
			bearer = bearer || len(field) >= len(scheme) && strings.EqualFold(field[len(field)-len(scheme):], scheme)
		}
	}
	out.ambiguous = out.ambiguous || tokens > 1 && out.n > 1
}

const scheme = "bearer"

// separates reports whether a sign may stand between the scheme and the token, or two of them. What is no UTF-8 is
// decoded as utf8.RuneError, and no part of either.
func separates(r rune) bool { return r == ',' || r == utf8.RuneError || isBlank(r) }

func (s *values) addClaim(token, claim string) {
	_, rest, _ := strings.Cut(token, ".")
	encoded, _, _ := strings.Cut(rest, ".")
	payload, ok := decodeBase64(encoded)
	if !ok || !s.addClaims(payload, claim) {
		s.unreadable = true
	}
}

var urlAlphabet = strings.NewReplacer("+", "-", "/", "_")

// decodeBase64 decodes both alphabets, with or without padding.
func decodeBase64(text string) ([]byte, bool) {
	text, _, _ = strings.Cut(text, "=")
	text, _ = decode(text) // padding or signs that were sent encoded
	b, err := base64.RawURLEncoding.DecodeString(urlAlphabet.Replace(strings.TrimRight(text, "=")))
	return b, err == nil && len(b) > 0
}

// addClaims adds a payload's claims of a name. One that is there twice has both values: parsers take the first or the
// last. It reports whether the payload is an object, or begins as one that has the claim.
func (s *values) addClaims(payload []byte, claim string) bool {
	before := s.n
	dec := json.NewDecoder(bytes.NewReader(bytes.TrimPrefix(payload, []byte("\ufeff"))))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	for dec.More() {
		var raw json.RawMessage
		name, err := dec.Token()
		if err != nil || dec.Decode(&raw) != nil {
			return s.n > before
		}
		if text, ok := name.(string); ok && strings.EqualFold(text, claim) { // encoding/json and others ignore case
			s.ambiguous = s.ambiguous || s.n > before
			s.addScalars(raw)
		}
	}
	_, err := dec.Token()
	return err == nil || s.n > before
}

// maxElements is how many elements a claim that is a list may have, equal ones included.
const maxElements = 64

// addScalars adds a text or a number as it is written, and those of a list. An object is unreadable; null is as good as
// missing.
func (s *values) addScalars(raw json.RawMessage) {
	switch raw[0] {
	case '"':
		var text string
		_ = json.Unmarshal(raw, &text) // it is valid JSON
		s.add(text)
	case '[':
		var list []json.RawMessage
		_ = json.Unmarshal(raw, &list)
		if len(list) > maxElements {
			s.excess = true
			return
		}
		for _, element := range list {
			if element[0] == '[' || element[0] == '{' {
				s.unreadable = true
				continue
			}
			s.addScalars(element)
		}
	case '{':
		s.unreadable = true
	case 'n':
	default:
		s.add(string(raw))
	}
}
