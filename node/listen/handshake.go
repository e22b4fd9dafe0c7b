package listen

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/edgelimit/edgelimit/node/limits"
)

const (
	// handshakeWithin is the longest time for what comes before a connection's first request: the PROXY header and the
	// TLS handshake.
	handshakeWithin = 5 * time.Second
	// maxHeader is the longest PROXY header, in bytes. One of version 1 has up to 107, one of version 2 more than 52 if
	// the balancer adds fields, which nobody reads here.
	maxHeader = 4 << 10
	// maxErrorText caps what the log shows of an error, in bytes, as clients can make it long.
	maxErrorText = 256
)

// accepted is what Accept returns once a connection's handshake is over.
type accepted struct {
	conn net.Conn
	err  error
}

// hasHandshakes reports whether something comes before a connection's first request.
func (l *Listener) hasHandshakes() bool { return l.tls != nil || l.ProxyProtocol != nil }

// acceptAll accepts connections until the listener closes, so that a slow handshake delays no other connection.
func (l *Listener) acceptAll() {
	for {
		c, err := l.accept()
		if err == nil {
			l.handshakes.Go(func() { l.establish(c) })
			continue
		}
		select {
		case l.accepted <- accepted{nil, err}: // the server pauses after some errors
		case <-l.open.Done():
			return
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// establish hands a connection to Accept, or ends it.
func (l *Listener) establish(c *limitedConn) {
	conn, err := l.handshake(c)
	switch {
	case err == errRefused:
	case err != nil && l.open.Err() == nil:
		l.fail(clientOf(c), err)
		_ = c.Conn.SetDeadline(time.Now().Add(refuseWithin))
		awaitClose(c.Conn) // it has an alert to read
		fallthrough
	case err != nil:
		_ = c.Close()
	default:
		select {
		case l.accepted <- accepted{conn, nil}:
		case <-l.open.Done():
			_ = conn.Close()
		}
	}
}

// errRefused means that a connection was refused once its client was known.
var errRefused = errors.New("refused")

// handshake reads the PROXY header and speaks TLS, as far as that is configured.
func (l *Listener) handshake(c *limitedConn) (net.Conn, error) {
	_ = c.Conn.SetDeadline(time.Now().Add(l.handshakeWithin))
	wakes := context.AfterFunc(l.open, func() { _ = c.Conn.SetDeadline(time.Unix(1, 0)) })
	if c.forwarded {
		if err := c.readHeader(); err != nil {
			return nil, err
		}
		evicted, why := l.identify(c)
		if evicted != nil {
			_ = evicted.Conn.Close()
		}
		if why != admitted {
			l.warn(clientOf(c), why)
			wakes()
			l.refuse(c.Conn)
			return nil, errRefused
		}
	}
	conn := net.Conn(c)
	if l.tls != nil {
		secure := tls.Server(c, l.tls.loaded.Load().config)
		if err := secure.Handshake(); err != nil {
			return nil, err
		}
		conn = secure
	}
	wakes()
	return conn, c.Conn.SetDeadline(time.Time{})
}

var (
	errHeader          = errors.New("the PROXY header is missing or malformed")
	errUntrustedHeader = errors.New("a PROXY header from an address that is not in proxy_protocol")
)

// readHeader reads the PROXY header, and takes the client's address from it: that of the peer, if it has none, as in
// the balancer's own health checks.
func (c *limitedConn) readHeader() error {
	in := bufio.NewReaderSize(io.LimitReader(c, maxHeader), 512)
	if _, err := in.Peek(1); err != nil { // as of a probe that only connects
		return err
	}
	h, err := proxyproto.Read(in)
	if _, ok := errors.AsType[net.Error](err); ok {
		return err
	} else if err != nil {
		return fmt.Errorf("%w: %w", errHeader, err)
	}
	if client, ok := h.SourceAddr.(*net.TCPAddr); ok && h.Command.IsProxy() {
		c.client = client
	}
	c.early, _ = in.Peek(in.Buffered())
	return nil
}

// isHeader reports whether a connection begins with a PROXY header.
func isHeader(b []byte) bool {
	return bytes.HasPrefix(b, proxyproto.SIGV1) || bytes.HasPrefix(b, proxyproto.SIGV2)
}

// failure is why a handshake failed, as metrics and logs name it.
type failure string

// failures are all of them, with what to do. Those without are not worth a warning.
var failures = map[failure]string{
	"plain_text":        "the client does not speak TLS: have it use https, rediss, or TLS for gRPC",
	"version":           "the client has old versions of TLS only: renew it; see min_version",
	"no_certificate":    "give the client a certificate of client_ca_file's authorities, or set client_certs: optional",
	"unknown_authority": "no authority in client_ca_file has signed the client's certificate: add it if it is trusted",
	"expired":           "the client's certificate has expired, or is not yet valid: renew it; compare the clocks",
	"bad_certificate":   "the client's certificate cannot be verified: it has to be one for clients",
	"client_name":       "the client's certificate has none of client_names: add one that it has if it is trusted",
	"refused":           "the client refuses this listener: see which authorities it trusts, and which name it expects",
	"timeout":           "the client was too slow, or waits for the server: see whether it speaks TLS, and PROXY",
	"proxy_header":      "have the balancer send PROXY headers, and list its addresses, alone, in proxy_protocol",
	"closed":            "",
	"other":             "see the error",
}

// failureOf returns why a handshake failed.
func failureOf(err error) failure {
	text := err.Error()
	invalid, _ := errors.AsType[x509.CertificateInvalidError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	op, _ := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, errHeader), errors.Is(err, errUntrustedHeader):
		return "proxy_header"
	case errors.Is(err, errClientName):
		return "client_name"
	case plain:
		return "plain_text"
	case unverified && invalid.Reason == x509.Expired && !unknown:
		return "expired"
	case unknown:
		return "unknown_authority"
	case unverified:
		return "bad_certificate"
	case strings.Contains(text, "didn't provide a certificate"): // crypto/tls has no type for it, nor for the next
		return "no_certificate"
	case strings.Contains(text, "offered only unsupported versions"):
		return "version"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case op != nil && op.Op == "remote error":
		return "refused"
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrUnexpectedEOF):
		return "closed"
	}
	return "other"
}

// handshakeFailures counts failed handshakes.
type handshakeFailures struct {
	mu       sync.Mutex
	total    map[failure]uint64
	unwarned map[failure]int
	warnings map[failure]*limits.OncePerMinute
}

func newHandshakeFailures() *handshakeFailures {
	f := &handshakeFailures{total: make(map[failure]uint64), unwarned: make(map[failure]int),
		warnings: make(map[failure]*limits.OncePerMinute)}
	for why := range failures {
		f.total[why], f.warnings[why] = 0, new(limits.OncePerMinute)
	}
	return f
}

// HandshakeFailures returns how many handshakes failed since the listener was opened, by reason; where connections
// begin without one, for a PROXY header at most. It is safe for concurrent use.
func (l *Listener) HandshakeFailures() map[string]uint64 {
	f := l.failures
	f.mu.Lock()
	defer f.mu.Unlock()
	totals := make(map[string]uint64, len(f.total))
	for why, n := range f.total {
		if n > 0 || l.hasHandshakes() {
			totals[string(why)] = n
		}
	}
	return totals
}

// fail counts a failed handshake, and logs its reason and what to do, at most once a minute for each reason.
func (l *Listener) fail(client netip.Addr, err error) {
	why, f := failureOf(err), l.failures
	f.mu.Lock()
	defer f.mu.Unlock()
	f.total[why]++
	f.unwarned[why]++
	if failures[why] == "" || !f.warnings[why].Due(time.Now()) {
		return
	}
	text := err.Error()
	l.log.Warn("connections are refused in their handshake", "door", l.Name, "reason", string(why),
		"advice", failures[why], "source", client.String(), "connections", f.unwarned[why],
		"error", strings.ToValidUTF8(text[:min(len(text), maxErrorText)], "?"))
	f.unwarned[why] = 0
}
