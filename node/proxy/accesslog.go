package proxy

import (
	"cmp"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/logfile"
)

// accessLog appends a line for each request to a file. It is safe for concurrent use.
type accessLog struct {
	*logfile.File
	format func(b []byte, l *logLine) []byte
}

// logLine is what the log has of a request. The strings may hold any byte.
type logLine struct {
	Time      time.Time `json:"time"`
	Client    string    `json:"remote_addr"`
	Host      string    `json:"host"`
	Method    string    `json:"method"`
	URI       string    `json:"uri"`
	Proto     string    `json:"proto"`
	Status    int       `json:"status"` // 499: the client has gone without a response
	Bytes     int64     `json:"bytes"`
	Duration  float64   `json:"duration_ms"`
	Referer   string    `json:"referer,omitempty"`
	UserAgent string    `json:"user_agent,omitempty"`
	Upstream  string    `json:"upstream,omitempty"`
	Decision  string    `json:"decision"`       // allow, deny
	Rule      string    `json:"rule,omitempty"` // the one that governs
}

func openAccessLog(cfg AccessLog, log *slog.Logger) (*accessLog, error) {
	file, err := logfile.Open(cfg.File, "access log", log)
	if err != nil {
		return nil, err
	}
	format := appendJSON
	if cfg.Format == Combined {
		format = appendCombined
	}
	return &accessLog{file, format}, nil
}

func (a *accessLog) add(l *logLine) { a.Add(func(b []byte) []byte { return a.format(b, l) }) }

func appendJSON(b []byte, l *logLine) []byte {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // strings and numbers only: it cannot fail
	}
	return append(b, text...)
}

// appendCombined appends the line in the combined format of Apache httpd and nginx.
func appendCombined(b []byte, l *logLine) []byte {
	b = append(appendField(b, l.Client), " - - ["...)
	b = l.Time.AppendFormat(b, "02/Jan/2006:15:04:05 -0700")
	b = appendField(append(b, `] "`...), l.Method)
	b = appendField(append(b, ' '), l.URI)
	b = append(append(append(b, ' '), l.Proto...), `" `...)
	b = strconv.AppendInt(b, int64(l.Status), 10)
	b = strconv.AppendInt(append(b, ' '), l.Bytes, 10)
	b = appendField(append(b, ` "`...), l.Referer)
	b = appendField(append(b, `" "`...), l.UserAgent)
	return append(b, '"')
}

// appendField appends a value as nginx escapes it.
func appendField(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	if s == "" {
		return append(b, '-')
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			b = append(b, '\\', 'x', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return b
}

// clientGone is the status that the log and the metrics show where the client has gone before its response.
const clientGone = 499

// record counts the request, and logs it.
func (p *Proxy) record(x *exchange, r *http.Request, began time.Time) {
	if x.status == 0 {
		x.status = clientGone
	}
	p.classes[min(max(cmp.Or(x.failed, x.status)/100, 1), 5)].Add(1)
	if p.access == nil {
		return
	}
	l := logLine{Time: began.UTC(), Host: r.Host, Method: r.Method, URI: r.RequestURI, Proto: r.Proto,
		Status: x.status, Bytes: x.sent, Duration: float64(time.Since(began).Microseconds()) / 1000,
		Referer: r.Header.Get("Referer"), UserAgent: r.Header.Get("User-Agent"), Decision: "allow"}
	if client, _ := p.requests.Client(r); client.IsValid() {
		l.Client = client.String()
	}
	if x.upstream != nil {
		l.Upstream = x.upstream.name
	}
	if x.denied {
		l.Decision = "deny"
	}
	if g := counters.Governing(x.layers); g >= 0 {
		l.Rule = x.layers[g].Rule
	}
	p.access.add(&l)
}
