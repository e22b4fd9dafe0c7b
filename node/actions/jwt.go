package actions

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
)

// jwt is a claim of the token that the request bears: a text or a number. Its signature is not looked at: it is for whoever stands before or behind the
// node to turn down what is forged, and until then a client may call itself what it likes.
func jwt(v *view, claim string) (string, bool) {
	line, ok := header(v, "Authorization")
	scheme, token, _ := strings.Cut(line, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return "", false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", false
	}
	return claimOf(payload, claim)
}

// claimOf returns a claim of a payload. One that stands there twice is none: who verifies the token may take the other.
func claimOf(payload []byte, claim string) (value string, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return "", false
	}
	seen := false
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return "", false
		}
		var raw json.RawMessage
		if dec.Decode(&raw) != nil {
			return "", false
		}
		if name != claim {
			continue
		}
		if seen {
			return "", false
		}
		seen = true
		value, ok = scalar(raw)
	}
	if _, err := dec.Token(); err != nil {
		return "", false
	}
	return value, ok
}

// scalar returns a text or a number as it is written.
func scalar(raw json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil && raw[0] == '"' {
		return text, text != ""
	}
	var number json.Number
	if raw[0] != '"' && json.Unmarshal(raw, &number) == nil && number != "" {
		return number.String(), true
	}
	return "", false
}
