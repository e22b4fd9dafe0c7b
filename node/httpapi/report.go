package httpapi

import "net/http"

// report answers /v1/report: it charges what a request cost, and says where its client stands then. Its body is that of a check.
func (d *door) report(w http.ResponseWriter, r *http.Request, s *scratch) error {
	if d.opt.Reporter == nil {
		return refuse(http.StatusNotFound, "reports are not taken here")
	}
	s.report = true
	v, err := d.decide(r, s, s.body)
	if err != nil {
		return err
	}
	d.headers.Write(w.Header(), s.layers)
	d.answer(w, s, v)
	return nil
}
