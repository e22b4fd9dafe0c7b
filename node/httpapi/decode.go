package httpapi

import "github.com/edgelimit/edgelimit/node/rules"

// MaxChecks is the most checks that one batch may hold.
const MaxChecks = 1000

// maxRequestID is the longest request_id, in bytes.
const maxRequestID = 128

var (
	checkFields   = []string{"domain", "descriptors", "rule", "identity", "cost", "peek", "request_id"}
	entryFields   = []string{"key", "value"}
	batchFields   = []string{"checks"}
	limiterFields = []string{"rule_id", "identity"}
)

// span is where a check stands in a body.
type span struct{ begin, end int }

// complete is the span of a body that is one check.
func (s *scratch) complete() span { return span{0, len(s.body)} }

// decodeCheck reads a check of /v1/check into the scratch.
func (s *scratch) decodeCheck(at span) error {
	s.reset()
	j := &s.json
	j.reset(s.buf[at.begin:at.end], s.body[at.begin:at.end])
	err := j.object("a check", checkFields, func(name string) error {
		switch name {
		case "domain":
			return j.stringInto(name, &s.req.Domain)
		case "rule":
			return j.stringInto(name, &s.req.Rule)
		case "identity":
			return j.stringInto(name, &s.req.Identity)
		case "cost":
			return j.uintInto(name, &s.req.Cost)
		case "peek":
			return j.boolInto(name, &s.req.Peek)
		case "descriptors":
			return s.decodeDescriptors()
		}
		if err := j.stringInto(name, &s.requestID); err != nil {
			return err
		}
		if n := len(s.requestID); n == 0 || n > maxRequestID {
			return badRequest("request_id has %d bytes: give 1 to %d", n, maxRequestID)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return j.end()
}

// decodeDescriptors stops at what rules accept, so that a body of empty brackets does not cost many times its length.
func (s *scratch) decodeDescriptors() error {
	return s.json.array("descriptors", func() error {
		if len(s.req.Descriptors) == rules.MaxDescriptors {
			return badRequest("a check has more than %d descriptors: send fewer", rules.MaxDescriptors)
		}
		first := len(s.entries)
		err := s.json.array("a descriptor", func() error {
			if len(s.entries)-first == rules.MaxEntries {
				return badRequest("a descriptor has more than %d entries: send fewer", rules.MaxEntries)
			}
			s.entries = append(s.entries, rules.Entry{})
			e := &s.entries[len(s.entries)-1]
			return s.json.object("an entry", entryFields, func(name string) error {
				if name == "key" {
					return s.json.stringInto(name, &e.Key)
				}
				return s.json.stringInto(name, &e.Value)
			})
		})
		s.req.Descriptors = append(s.req.Descriptors, s.entries[first:len(s.entries):len(s.entries)])
		return err
	})
}

// decodeLimiterCheck reads the body of /limiter/check.
func (s *scratch) decodeLimiterCheck() error {
	s.json.reset(s.buf, s.body)
	err := s.json.object("a check", limiterFields, func(name string) error {
		if name == "rule_id" {
			return s.json.stringInto(name, &s.req.Rule)
		}
		return s.json.stringInto(name, &s.req.Identity)
	})
	if err != nil {
		return err
	}
	return s.json.end()
}

// splitBatch returns the checks of a batch without decoding them: an error in one does not concern the others.
func (s *scratch) splitBatch() ([]span, error) {
	var checks []span
	found := false
	s.json.reset(s.buf, s.body)
	err := s.json.object("a batch", batchFields, func(name string) error {
		found = true
		return s.json.array(name, func() error {
			if len(checks) == MaxChecks {
				return badRequest("a batch has more than %d checks: send them in several", MaxChecks)
			}
			begin, end, err := s.json.skip()
			checks = append(checks, span{begin, end})
			return err
		})
	})
	if err == nil {
		err = s.json.end()
	}
	if err == nil && !found {
		err = badRequest(`a batch has no checks: send {"checks":[...]}`)
	}
	return checks, err
}
