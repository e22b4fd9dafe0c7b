package otlp

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/certs"
	"github.com/edgelimit/edgelimit/node/files"
)

// client sends requests with the headers and by the certificates that the configuration's files hold. It is safe for
// concurrent use.
type client struct {
	cfg  node.OTLP
	used atomic.Pointer[loaded]
}

// loaded is what the files held.
type loaded struct {
	headers   http.Header
	transport *http.Transport
}

// load reads the files, and puts what they hold in use. The error names the setting.
func (c *client) load() error {
	headers, err := readHeaders(c.cfg.HeadersFile)
	if err != nil {
		return fmt.Errorf("headers_file: %w", err)
	}
	trust := certs.Client{CAFile: c.cfg.CAFile, CertFile: c.cfg.CertFile, KeyFile: c.cfg.KeyFile}
	tls, err := trust.Config()
	if err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig, transport.MaxConnsPerHost = tls, 2 // one a signal
	if before := c.used.Swap(&loaded{headers, transport}); before != nil {
		before.transport.CloseIdleConnections()
	}
	return nil
}

func (c *client) close() { c.used.Load().transport.CloseIdleConnections() }

// RoundTrip implements http.RoundTripper.
func (c *client) RoundTrip(r *http.Request) (*http.Response, error) {
	used := c.used.Load()
	if len(used.headers) > 0 {
		r = r.Clone(r.Context())
		for name, values := range used.headers {
			r.Header[name] = values
		}
	}
	return used.transport.RoundTrip(r)
}

const maxHeaders = 16 << 10 // bytes of the file

// readHeaders reads lines "Name: value". Empty ones and those that begin with # mean nothing. Errors quote no value.
func readHeaders(file string) (http.Header, error) {
	headers := make(http.Header)
	if file == "" {
		return headers, nil
	}
	text, err := files.Read(file, maxHeaders+1)
	if err != nil {
		return nil, err
	}
	if len(text) > maxHeaders {
		return nil, fmt.Errorf("%s is longer than %d bytes", file, maxHeaders)
	}
	for i, line := range bytes.Split(text, []byte("\n")) {
		line := strings.TrimSpace(string(line))
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, found := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if !found || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("%s, line %d: want a header, as in Authorization: Bearer TOKEN", file, i+1)
		}
		headers.Add(name, value)
	}
	if len(headers) == 0 {
		return nil, errors.New(file + " holds no header, as in Authorization: Bearer TOKEN")
	}
	return headers, nil
}
