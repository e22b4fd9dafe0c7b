package httpapi

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
)

// check answers /v1/check, and /v1/report but for its charge.
func (a *api) check(w http.ResponseWriter, r *http.Request, s *scratch) error {
	v, err := a.decide(r, s, s.complete())
	if err != nil {
		return err
	}
	retryAfter := a.headers.Write(w.Header(), s.layers)
	if !v.Allowed && !s.report && r.URL.RawQuery != "" && r.URL.Query().Get("status") == "1" {
		answer.NewDenial(http.StatusTooManyRequests, s.layers, retryAfter).Write(w)
		return nil
	}
	s.out = append(appendVerdict(s.out, v), '\n')
	writeJSON(w, s.out)
	return nil
}

// report answers /v1/report, whose body is that of a check: it charges the cost, and returns what is left.
func (a *api) report(w http.ResponseWriter, r *http.Request, s *scratch) error {
	if a.opt.Reporter == nil {
		return refusef(http.StatusNotFound, "reports are not taken here")
	}
	s.report = true
	return a.check(w, r, s)
}

// batch answers /v1/check/batch. Checks are decided one after the other in their order; each is charged by itself.
func (a *api) batch(w http.ResponseWriter, r *http.Request, s *scratch) error {
	checks, err := s.splitBatch()
	if err != nil {
		return err
	}
	s.out = append(s.out, `{"results":[`...)
	for i, check := range checks {
		if i > 0 {
			s.out = append(s.out, ',')
		}
		v, err := a.decide(r, s, check)
		if err == nil {
			s.out = appendVerdict(s.out, v)
			continue
		}
		f := a.refusalOf(r.Context(), err)
		s.out = strconv.AppendInt(append(s.out, `{"error":{"status":`...), int64(f.status), 10)
		s.out = append(appendText(append(s.out, `,"detail":`...), f.detail), "}}"...)
	}
	s.out = append(s.out, "]}\n"...)
	s.holdOut()
	writeJSON(w, s.out)
	return nil
}

// standing is the response of /limiter/check, allowed or not.
type standing struct {
	Allowed   bool   `json:"allowed"`
	Remaining uint64 `json:"remaining"`
	ResetAt   int64  `json:"reset_at"` // Unix seconds, rounded up
}

// limiterCheck answers /limiter/check.
func (a *api) limiterCheck(w http.ResponseWriter, r *http.Request, s *scratch) error {
	err := s.decode(s.complete(), "a check", field{"rule_id", &s.req.Rule}, field{"identity", &s.req.Identity})
	if err != nil {
		return err
	}
	v, err := a.ask(r, s, false)
	if err != nil {
		return err
	}
	at := &standing{v.Allowed, v.Governing.Remaining, answer.UnixUp(a.opt.Now().Add(v.Governing.ResetAfter))}
	retryAfter := a.headers.Write(w.Header(), s.layers)
	if v.Allowed {
		w.Header()["Content-Type"] = jsonType
		return json.NewEncoder(w).Encode(at)
	}
	p := answer.NewDenial(http.StatusTooManyRequests, s.layers, retryAfter)
	body, err := json.Marshal(struct {
		*answer.Problem
		*standing
	}{p, at})
	if err != nil {
		return err
	}
	p.WriteBody(w, append(body, '\n'))
	return nil
}

// envoy answers /json.
func (a *api) envoy(w http.ResponseWriter, r *http.Request, s *scratch) error {
	if a.opt.Envoy == nil {
		return refusef(http.StatusNotFound, "Envoy's rate limit service is not configured here")
	}
	s.json.reset(s.buf, s.body)
	if _, err := s.json.skip(); err != nil {
		return err
	}
	if err := s.json.end(); err != nil {
		return err
	}
	resp, allowed, err := a.opt.Envoy(r.Context(), s.buf)
	if err != nil {
		return err
	}
	w.Header()["Content-Type"] = jsonType
	if !allowed {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(resp)
	return nil
}

// decide decodes a check and decides it, or charges it if it is a report. The decisions are left in s.layers.
func (a *api) decide(r *http.Request, s *scratch, at span) (counters.Verdict, error) {
	if err := s.decodeCheck(at); err != nil {
		return counters.Verdict{}, err
	}
	if s.requestID == "" {
		return a.ask(r, s, s.report)
	}
	return a.askOnce(r, s)
}

// ask has the limiter decide s.req, or charge it if it reports. The decisions are left in s.layers.
func (a *api) ask(r *http.Request, s *scratch, reports bool) (counters.Verdict, error) {
	ask := a.limiter.Decide
	if reports {
		ask = a.opt.Reporter.Report
	}
	layers, err := ask(r.Context(), &s.req, s.layers[:0])
	if err != nil {
		return counters.Verdict{}, err
	}
	s.layers = layers
	return counters.VerdictOf(layers), nil
}

func writeJSON(w http.ResponseWriter, body []byte) {
	w.Header()["Content-Type"] = jsonType
	_, _ = w.Write(body)
}

// appendVerdict appends the response of /v1/check. encoding/json would cost each request some allocations.
func appendVerdict(b []byte, v counters.Verdict) []byte {
	g := &v.Governing
	b = strconv.AppendBool(append(b, `{"allowed":`...), v.Allowed)
	b = appendText(append(b, `,"rule":`...), g.Rule)
	b = strconv.AppendUint(append(b, `,"limit":`...), g.Limit, 10)
	b = strconv.AppendUint(append(b, `,"remaining":`...), g.Remaining, 10)
	b = strconv.AppendInt(append(b, `,"reset_after_ms":`...), answer.RoundUp(g.ResetAfter, time.Millisecond), 10)
	b = strconv.AppendInt(append(b, `,"retry_after_ms":`...), answer.RoundUp(g.RetryAfter, time.Millisecond), 10)
	b = strconv.AppendInt(append(b, `,"delay_ms":`...), answer.RoundUp(v.Delay, time.Millisecond), 10)
	b = append(append(b, `,"mode":"`...), g.Mode.String()...)
	b = strconv.AppendBool(append(b, `","degraded":`...), v.Degraded)
	if g.Banned {
		b = append(b, `,"banned":true`...)
	}
	return append(b, '}')
}

// appendText appends s as a JSON string, with bytes that are not UTF-8 as U+FFFD.
func appendText(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // its error is invalid UTF-8
	return b
}
