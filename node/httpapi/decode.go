package httpapi

import "github.com/edgelimit/edgelimit/node/rules"

// maxChecks is the most checks that one batch may hold.
const maxChecks = 1000

// maxRequestID is the longest request_id, in bytes.
const maxRequestID = 128

// span is where a check stands in a body.
type span struct{ begin, end int }

// complete is the span of a body that is one check.
func (s *scratch) complete() span { return span{0, len(s.body)} }

// decode reads the part of the body at a span: one object.
func (s *scratch) decode(at span, what string, fields ...field) error {
	s.json.reset(s.buf[at.begin:at.end], s.body[at.begin:at.end])
	if err := s.json.object(what, fields...); err != nil {
		return err
	}
	return s.json.end()
}

// decodeCheck reads a check of /v1/check into the scratch.
func (s *scratch) decodeCheck(at span) error {
	s.reset()
	r := &s.req
	return s.decode(at, "a check", field{"domain", &r.Domain}, field{"descriptors", s.decodeDescriptors},
		field{"rule", &r.Rule}, field{"identity", &r.Identity}, field{"cost", &r.Cost}, field{"peek", &r.Peek},
		field{"request_id", s.decodeRequestID})
}

func (s *scratch) decodeRequestID() error {
	if err := s.json.value("request_id", &s.requestID); err != nil {
		return err
	}
	if n := len(s.requestID); n == 0 || n > maxRequestID {
		return badRequest("request_id has %d bytes: give 1 to %d", n, maxRequestID)
	}
	return nil
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
			return s.json.object("an entry", field{"key", &e.Key}, field{"value", &e.Value})
		})
		s.req.Descriptors = append(s.req.Descriptors, s.entries[first:len(s.entries):len(s.entries)])
		return err
	})
}

// splitBatch returns the checks of a batch without decoding them: an error in one does not concern the others.
func (s *scratch) splitBatch() (checks []span, err error) {
	found := false
	err = s.decode(s.complete(), "a batch", field{"checks", func() error {
		found = true
		return s.json.array("checks", func() error {
			if len(checks) == maxChecks {
				return badRequest("a batch has more than %d checks: send them in several", maxChecks)
			}
			at, err := s.json.skip()
			checks = append(checks, at)
			return err
		})
	}})
	if err == nil && !found {
		err = badRequest(`a batch has no checks: send {"checks":[...]}`)
	}
	return checks, err
}
