package httpapi

import (
	"net/http"
	"strconv"
)

// MaxChecks is the most checks that one batch may hold.
const MaxChecks = 1000

var batchFields = []string{"checks"}

// batch answers /v1/check/batch. Checks are decided one after the other in their order; each is charged by itself.
func (d *door) batch(w http.ResponseWriter, r *http.Request, s *scratch) error {
	checks, err := splitBatch(s.body)
	if err != nil {
		return err
	}
	s.out = append(s.out, `{"results":[`...)
	for i, check := range checks {
		if i > 0 {
			s.out = append(s.out, ',')
		}
		v, err := d.decide(r, s, check)
		if err != nil {
			s.out = appendError(s.out, d.refusalFor(r.Context(), err))
			continue
		}
		s.out = appendAnswer(s.out, v)
	}
	s.out = append(s.out, "]}\n"...)
	s.owe(&d.bodies)
	w.Header().Set("Content-Type", "application/json")
	w.Write(s.out)
	return nil
}

// splitBatch returns the checks of a batch as they stand: what is wrong with one is no matter of the others.
func splitBatch(text string) ([]string, error) {
	var checks []string
	asked := false
	c := cursor{text: text}
	err := c.object("a batch", batchFields, func(name string) error {
		asked = true
		return c.array(name, func() error {
			if len(checks) == MaxChecks {
				return refuse(http.StatusBadRequest, "a batch has more than %d checks: send them in several", MaxChecks)
			}
			checks = append(checks, c.raw())
			return nil
		})
	})
	if err == nil && !asked {
		err = refuse(http.StatusBadRequest, `a batch has no checks: send {"checks":[...]}`)
	}
	return checks, err
}

func appendError(b []byte, f *refusal) []byte {
	b = strconv.AppendInt(append(b, `{"error":{"status":`...), int64(f.status), 10)
	return append(appendText(append(b, `,"detail":`...), f.detail), "}}"...)
}
