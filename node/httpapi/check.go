package httpapi

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

var (
	checkFields = []string{"domain", "descriptors", "rule", "identity", "cost", "peek", "request_id"}
	entryFields = []string{"key", "value"}
)

// jsonType is a value of a header, which nobody writes to.
var jsonType = []string{"application/json"}

// check answers /v1/check.
func (d *door) check(w http.ResponseWriter, r *http.Request, s *scratch) error {
	v, err := d.decide(r, s, s.body)
	if err != nil {
		return err
	}
	retryAfter := d.headers.Write(w.Header(), s.layers)
	if !v.Allowed && r.URL.RawQuery != "" && r.URL.Query().Get("status") == "1" {
		deny(w, http.StatusTooManyRequests, v, s.layers, retryAfter, nil)
		return nil
	}
	d.answer(w, s, v)
	return nil
}

// answer writes the answer of /v1/check with status 200.
func (d *door) answer(w http.ResponseWriter, s *scratch, v counters.Verdict) {
	s.out = append(appendAnswer(s.out, v), '\n')
	w.Header()["Content-Type"] = jsonType
	w.Write(s.out)
}

// decide has the limiter decide the check that text, valid JSON, asks for. The decisions are left in s.layers.
func (d *door) decide(r *http.Request, s *scratch, text string) (counters.Verdict, error) {
	if err := s.decodeCheck(text); err != nil {
		return counters.Verdict{}, err
	}
	if s.requestID == "" {
		return d.ask(r, s)
	}
	return d.once(r, s)
}

// ask has the limiter decide s.req, or charge it as a report. The decisions are left in s.layers.
func (d *door) ask(r *http.Request, s *scratch) (counters.Verdict, error) {
	var layers []counters.Decision
	var err error
	if s.report {
		layers, err = d.opt.Reporter.Report(r.Context(), &s.req, s.layers[:0])
	} else {
		layers, err = d.limiter.Decide(r.Context(), &s.req, s.layers[:0])
	}
	if err != nil {
		return counters.Verdict{}, err
	}
	s.layers = layers
	return counters.VerdictOf(layers), nil
}

func (s *scratch) decodeCheck(text string) error {
	s.forget()
	c := cursor{text: text}
	return c.object("a check", checkFields, func(name string) error {
		switch name {
		case "domain":
			return c.stringInto(name, &s.req.Domain)
		case "rule":
			return c.stringInto(name, &s.req.Rule)
		case "identity":
			return c.stringInto(name, &s.req.Identity)
		case "cost":
			return c.wholeInto(name, &s.req.Cost)
		case "peek":
			return c.boolInto(name, &s.req.Peek)
		case "request_id":
			if err := c.stringInto(name, &s.requestID); err != nil {
				return err
			}
			if n := len(s.requestID); n == 0 || n > maxRequestID {
				return refuse(http.StatusBadRequest, "request_id has %d bytes: give 1 to %d", n, maxRequestID)
			}
			return nil
		}
		return s.decodeDescriptors(&c)
	})
}

// decodeDescriptors stops at what rules accept, so that a body of empty brackets does not cost many times its length.
func (s *scratch) decodeDescriptors(c *cursor) error {
	return c.array("descriptors", func() error {
		if len(s.req.Descriptors) == rules.MaxDescriptors {
			return refuse(http.StatusBadRequest, "a check has more than %d descriptors: send fewer", rules.MaxDescriptors)
		}
		first := len(s.entries)
		err := c.array("a descriptor", func() error {
			if len(s.entries)-first == rules.MaxEntries {
				return refuse(http.StatusBadRequest, "a descriptor has more than %d entries: send fewer", rules.MaxEntries)
			}
			s.entries = append(s.entries, rules.Entry{})
			e := &s.entries[len(s.entries)-1]
			return c.object("an entry", entryFields, func(name string) error {
				if name == "key" {
					return c.stringInto(name, &e.Key)
				}
				return c.stringInto(name, &e.Value)
			})
		})
		s.req.Descriptors = append(s.req.Descriptors, s.entries[first:len(s.entries):len(s.entries)])
		return err
	})
}

// appendAnswer appends the answer of /v1/check. It is written by hand because it is written for every request.
func appendAnswer(b []byte, v counters.Verdict) []byte {
	g := &v.Governing
	b = strconv.AppendBool(append(b, `{"allowed":`...), v.Allowed)
	b = appendText(append(b, `,"rule":`...), g.Rule)
	b = strconv.AppendUint(append(b, `,"limit":`...), g.Limit, 10)
	b = strconv.AppendUint(append(b, `,"remaining":`...), g.Remaining, 10)
	b = strconv.AppendInt(append(b, `,"reset_after_ms":`...), roundUp(g.ResetAfter, time.Millisecond), 10)
	b = strconv.AppendInt(append(b, `,"retry_after_ms":`...), roundUp(g.RetryAfter, time.Millisecond), 10)
	b = strconv.AppendInt(append(b, `,"delay_ms":`...), roundUp(v.Delay, time.Millisecond), 10)
	b = append(append(b, `,"mode":"`...), g.Mode.String()...)
	b = append(b, `","degraded":`...)
	return append(strconv.AppendBool(b, v.Degraded), '}')
}

// roundUp is d in whole units, rounded up; -1 when d is counters.Never.
func roundUp(d, unit time.Duration) int64 {
	if d == counters.Never {
		return -1
	}
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}

// appendText appends s as a JSON string.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil {
				panic(err) // a string: it cannot fail
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
