package httpapi

import (
	"log/slog"
	"net/http"
	"time"
)

// door is the handler behind New. But for what it has said and the allowance for bodies it is immutable.
type door struct {
	limiter Limiter
	headers *Headers
	said    *said
	bodies  allowance
	opt     Options
}

// New returns the door to l, safe for concurrent use. It panics if the options are invalid: those that come from outside are
// to be put through Options.Validate first.
func New(l Limiter, opt Options) http.Handler {
	if err := opt.Validate(); err != nil {
		panic(err)
	}
	opt = opt.withDefaults()
	headers, _ := NewHeaders(opt.Headers, opt.Now, opt.Jitter) // Validate has tried the names
	d := &door{limiter: l, headers: headers, said: newSaid(), opt: opt}
	d.bodies.left.Store(opt.MaxBodies)
	return d
}

// Server returns a server for h with the limits that keep slow and greedy clients from holding its connections: headers
// within 2 s and 16 KiB, the whole request within 5 s, the answer within 10 s, idle connections for 60 s. What net/http has
// to complain of goes to logger; nil means slog.Default(). The caller listens, serves and shuts down.
func Server(h http.Handler, logger *slog.Logger) *http.Server {
	if logger == nil {
		logger = slog.Default()
	}
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 2 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
}

// ServeHTTP implements http.Handler. It routes by itself because a ServeMux refuses in plain text.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer func(*door, http.ResponseWriter, *http.Request, *scratch) error
	maxBody := d.opt.MaxBody
	switch r.URL.Path {
	case "/v1/auth":
		d.auth(w, r)
		return
	case "/v1/check":
		answer = (*door).check
	case "/v1/check/batch":
		answer, maxBody = (*door).batch, d.opt.MaxBatchBody
	case "/v1/report":
		answer = (*door).report
	case "/limiter/check":
		answer = (*door).limiterCheck
	case "/json":
		answer = (*door).envoy
	default:
		d.refuse(w, r, refuse(http.StatusNotFound, "nothing is served at this path: use /v1/check, /v1/check/batch, /v1/report, /v1/auth, /limiter/check or /json"))
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		d.refuse(w, r, refuse(http.StatusMethodNotAllowed, "checks are asked with POST and a JSON body"))
		return
	}
	s := takeScratch()
	defer s.giveBack(&d.bodies)
	err := s.read(w, r, maxBody, &d.bodies)
	if err == nil {
		err = answer(d, w, r, s)
	}
	if err != nil {
		d.refuse(w, r, err)
	}
}
