package httpapi

import "net/http"

// envoy answers /json.
func (d *door) envoy(w http.ResponseWriter, r *http.Request, s *scratch) error {
	if d.opt.Envoy == nil {
		return refuse(http.StatusNotFound, "Envoy's rate limit service is not configured here")
	}
	answer, allowed, err := d.opt.Envoy(r.Context(), s.buf)
	if err != nil {
		return err
	}
	w.Header()["Content-Type"] = jsonType
	if !allowed {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	w.Write(answer)
	return nil
}
