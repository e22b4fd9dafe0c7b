package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/node/rules"
	"github.com/edgelimit/edgelimit/node/text"

	"golang.org/x/net/http/httpguts"
)

// Config configures the reverse proxy.
type Config struct {
	// Listen is the address of the proxy, host:port or unix:/path; empty: there is none.
	Listen string `yaml:"listen"`
	// Upstreams are where requests go, in turns: http://host:port, https://host:port (HTTP/2 where the server has it),
	// or h2c://host:port, which is HTTP/2 without TLS.
	Upstreams []string `yaml:"upstreams"`
	// Routes say what the requests that they match are checked as. The first that matches counts, and where none does,
	// the descriptors of all requests (actions.Config).
	Routes []Route `yaml:"routes"`
	// Lax starts although no request can meet some of the rules. Else a node whose only API is the proxy does not.
	Lax bool `yaml:"lax"`
	// Timeouts bound what a client or an upstream may take. None of them ends a body or a WebSocket.
	Timeouts Timeouts `yaml:"timeouts"`
	// MaxHeaderBytes is the maximum size of a request's header, 1 KiB to 16 MiB. Larger ones get 431.
	MaxHeaderBytes int `yaml:"max_header_bytes"`
	// MaxBodyBytes is the maximum size of a request's body. Larger ones get 413. 0: there is none.
	MaxBodyBytes int64 `yaml:"max_body_bytes"`
	// Health says how upstreams are found to be down.
	Health Health `yaml:"health"`
	// Retries is how many more upstreams a request is sent to after one failed before its response: requests without a
	// body whose method is idempotent. 0 to 10.
	Retries int `yaml:"retries"`
	// DenialPage is a file that denied clients get in place of the problem document. Its extension gives the content
	// type. Empty: none.
	DenialPage string `yaml:"denial_page"`
	// DenialHeaders are added to what denied clients get, by their names: those of CORS, for example, without which a
	// browser does not show a page of another origin that it was denied. Empty: none.
	DenialHeaders map[string]string `yaml:"denial_headers"`
	// AccessLog is where requests are logged.
	AccessLog AccessLog `yaml:"access_log"`
}

// Route gives the requests of a host, a path and a method descriptors of their own.
type Route struct {
	// Host is a name, or *.name for all names below it. Empty: any.
	Host string `yaml:"host"`
	// Path is the beginning of a path, by whole segments. Empty: any.
	Path string `yaml:"path"`
	// Method is one, in capital letters. Empty: any.
	Method string `yaml:"method"`
	// Domain and Descriptors replace those of all requests. Empty, and nil: they do not. Descriptors that are an empty
	// list are none: nothing limits the requests.
	Domain      string               `yaml:"domain"`
	Descriptors []actions.Descriptor `yaml:"descriptors"`
	// Cost is what a request is charged; of 0 it only needs room for 1. nil means 1.
	Cost *uint64 `yaml:"cost"`
	// OnFailure is what happens to requests that cannot be decided, whatever their rules say. Unset: what these say.
	OnFailure rules.Failure `yaml:"on_failure"`
}

// Timeouts are those of connections; 0 means none.
type Timeouts struct {
	// Idle is the longest time until the first request of a client's connection, and between two. It may not be 0.
	Idle time.Duration `yaml:"idle"`
	// Header is how long a client may take to send a request's header once it has begun. It may not be 0.
	Header time.Duration `yaml:"header"`
	// Connect is how long connecting to an upstream may take, TLS included. It may not be 0.
	Connect time.Duration `yaml:"connect"`
	// FirstByte is how long an upstream may take to begin its response once it has the request.
	FirstByte time.Duration `yaml:"first_byte"`
}

// Health says how upstreams are found to be down. One that refuses a connection gets no requests for Interval, unless
// all do.
type Health struct {
	// Path is what each upstream is asked for, and answers with 2xx or 3xx while it is up. Empty: it is not asked.
	Path string `yaml:"path"`
	// Interval is the time between two checks.
	Interval time.Duration `yaml:"interval"`
	// Timeout is how long a check may take.
	Timeout time.Duration `yaml:"timeout"`
	// Healthy and Unhealthy are how many checks in a row have to succeed until the upstream is up, and to fail until
	// it is down.
	Healthy   int `yaml:"healthy"`
	Unhealthy int `yaml:"unhealthy"`
}

// AccessLog is a log of all requests, one line each.
type AccessLog struct {
	// File is where it is appended; it may be renamed at any time. "stdout" is standard output. Empty: there is none.
	File string `yaml:"file"`
	// Format is JSON or Combined.
	Format string `yaml:"format"`
}

// What AccessLog.Format may be. edgelimit replay reads both.
const (
	JSON     = "json"
	Combined = "combined" // as Apache httpd and nginx write it
)

// DefaultConfig returns a configuration without a listener.
func DefaultConfig() Config {
	return Config{
		Lax:           true,
		DenialHeaders: map[string]string{},
		Timeouts: Timeouts{Idle: 2 * time.Minute, Header: 10 * time.Second, Connect: 5 * time.Second,
			FirstByte: time.Minute},
		MaxHeaderBytes: 64 << 10,
		Health:         Health{Interval: 5 * time.Second, Timeout: 2 * time.Second, Healthy: 2, Unhealthy: 3},
		Retries:        1,
		AccessLog:      AccessLog{Format: JSON},
	}
}

// Validate reports all that is wrong with the configuration. requests are the descriptors of all requests.
func (c *Config) Validate(requests actions.Config) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Listen == "" || len(c.Upstreams) > 0, "upstreams: none: say where requests go, as in "+
		"http://127.0.0.1:3000 (edgelimit proxy: --upstream)")
	check(c.Listen != "" || len(c.Upstreams) == 0, "listen: no address, but upstreams: say where clients connect, as "+
		"in 127.0.0.1:8080 (edgelimit proxy: --listen)")
	for _, text := range c.Upstreams {
		_, err := parseUpstream(text)
		check(err == nil, "upstreams: %w", err)
	}
	for i := range c.Routes {
		_, err := c.Routes[i].compile(requests)
		check(err == nil, "routes: route %d: %w", i+1, err)
	}
	between := func(name string, d, least, most time.Duration, zero bool) {
		check(zero && d == 0 || d >= least && d <= most, "%s: %v, want %v to %v", name,
			text.Setting(d), text.Setting(least), text.Setting(most))
	}
	t, h := &c.Timeouts, &c.Health
	between("timeouts.idle", t.Idle, time.Second, 24*time.Hour, false)
	between("timeouts.header", t.Header, 100*time.Millisecond, 10*time.Minute, false)
	between("timeouts.connect", t.Connect, 10*time.Millisecond, 10*time.Minute, false)
	between("timeouts.first_byte", t.FirstByte, 10*time.Millisecond, 24*time.Hour, true)
	between("health.interval", h.Interval, 100*time.Millisecond, time.Hour, false)
	between("health.timeout", h.Timeout, 10*time.Millisecond, 10*time.Minute, false)
	check(h.Healthy >= 1 && h.Unhealthy >= 1, "health: healthy %d and unhealthy %d, want at least 1 each", h.Healthy,
		h.Unhealthy)
	check(h.Path == "" || isTarget(h.Path), "health.path: %q, want a path such as /healthz", h.Path)
	check(c.MaxHeaderBytes >= 1<<10 && c.MaxHeaderBytes <= 16<<20, "max_header_bytes: %d, want %d to %d",
		c.MaxHeaderBytes, 1<<10, 16<<20)
	check(c.MaxBodyBytes >= 0, "max_body_bytes: %d, want 0 for no maximum, or more", c.MaxBodyBytes)
	for name, value := range c.DenialHeaders {
		check(httpguts.ValidHeaderFieldName(name) && httpguts.ValidHeaderFieldValue(value) && !isFraming(name),
			"denial_headers: %.100q: %.100q: want a header that says nothing of the connection or the length", name,
			value)
	}
	check(c.Retries >= 0 && c.Retries <= 10, "retries: %d, want 0 to 10", c.Retries)
	format := c.AccessLog.Format
	check(format == JSON || format == Combined, "access_log.format: %q, want %s or %s", format, JSON, Combined)
	return errors.Join(errs...)
}

// isFraming reports whether a field is of the connection or says how long a response is.
func isFraming(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Connection", "Content-Length", "Transfer-Encoding", "Trailer", "Upgrade":
		return true
	}
	return false
}

func isTarget(path string) bool {
	u, err := url.ParseRequestURI(path)
	return err == nil && strings.HasPrefix(path, "/") && u.Host == ""
}

// parseUpstream reads the address of an upstream. The host of the result has a port.
func parseUpstream(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	ports := map[string]string{"http": "80", "h2c": "80", "https": "443"}
	if err != nil || ports[u.Scheme] == "" || u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" ||
		u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%.200q: want http://host:port, https://host:port or h2c://host:port, without a path",
			text)
	}
	u.Host = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), ports[u.Scheme]))
	return u, nil
}
