package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/edgelimit/edgelimit/node/actions"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// recorder is an upstream that keeps every byte it receives, and answers each request with 200.
type recorder struct {
	url string

	mu    sync.Mutex
	raw   bytes.Buffer
	paths []string // decoded, as limits see them
}

func record(t *testing.T) *recorder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	r := &recorder{url: "http://" + l.Addr().String()}
	var serving sync.WaitGroup
	var conns sync.Map
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Store(conn, true)
			serving.Go(func() { r.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		conns.Range(func(conn, _ any) bool { _ = conn.(net.Conn).Close(); return true })
		serving.Wait()
	})
	return r
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.raw.Write(b)
}

func (r *recorder) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(io.TeeReader(conn, r))
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		r.mu.Lock()
		if r.paths = append(r.paths, req.URL.Path); req.RequestURI == "*" {
			r.paths[len(r.paths)-1] = "/*"
		}
		r.mu.Unlock()
		if req.Header.Get("Expect") != "" {
			fmt.Fprint(conn, "HTTP/1.1 100 Continue\r\n\r\n")
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
		if req.Method != "HEAD" {
			fmt.Fprint(conn, "ok")
		}
	}
}

// vector is what a client sends, and the statuses of the responses that it gets until the connection is closed. @
// stands for the line break CRLF. The test appends a request that closes the connection.
type vector struct {
	name, send string
	want       []int
}

const hidden = "GET /hidden HTTP/1.1@Host: a@@"

func vectors() []vector {
	post := func(name, fields, body string, want ...int) vector {
		return vector{name, "POST /p HTTP/1.1@Host: a@" + fields + "@@" + body, want}
	}
	line := func(name, line string, want ...int) vector { return vector{name, line + "@Host: a@@", want} }
	field := func(name, fields string, want ...int) vector {
		return vector{name, "GET /g HTTP/1.1@Host: a@" + fields + "@@", want}
	}
	const chunked = "Transfer-Encoding: chunked"
	const end = "0@@"
	return []vector{
		// The length of a body, said twice or oddly.
		post("CL and TE", "Content-Length: 4@"+chunked, end+hidden, 200),
		post("TE and CL", chunked+"@Content-Length: 4", end+hidden, 200),
		post("CL 0 and TE", "Content-Length: 0@"+chunked, end+hidden, 200),
		post("CL that covers the hidden one, and TE", "Content-Length: 60@"+chunked, end+hidden, 200),
		post("two CL that differ", "Content-Length: 0@Content-Length: 33", hidden, 400),
		post("two CL that agree", "Content-Length: 3@Content-Length: 3", "abc", 200, 200),
		post("CL in a list", "Content-Length: 0, 31", hidden, 400),
		post("CL in a list that agrees", "Content-Length: 3, 3", "abc", 400),
		post("CL with plus", "Content-Length: +3", "abc", 400),
		post("CL with minus", "Content-Length: -3", "abc", 400),
		post("CL in hex", "Content-Length: 0x3", "abc", 400),
		post("CL with a dot", "Content-Length: 3.0", "abc", 400),
		post("CL with an exponent", "Content-Length: 3e0", "abc", 400),
		post("CL with an underscore", "Content-Length: 1_0", "abc", 400),
		post("CL empty", "Content-Length:", hidden, 400),
		post("CL with blanks within", "Content-Length: 3 1", hidden, 400),
		post("CL too large", "Content-Length: 99999999999999999999", "abc", 400),
		post("CL beyond 64 bits", "Content-Length: 18446744073709551619", "abc", 400),
		post("CL quoted", `Content-Length: "3"`, "abc", 400),
		post("CL with leading zeros", "Content-Length: 0003", "abc", 200, 200),
		post("CL with a blank before the colon", "Content-Length : 31", hidden, 400),
		post("CL with a tab before the colon", "Content-Length\t: 31", hidden, 400),
		post("CL with a vertical tab", "Content-Length:\v31", hidden, 400),
		post("CL with underscore in its name", "Content_Length: 31", hidden, 200, 200, 200),
		// How a body is coded.
		post("TE xchunked", "Transfer-Encoding: xchunked", end+hidden, 501),
		post("TE identity", "Transfer-Encoding: identity", hidden, 501),
		post("TE gzip, chunked", "Transfer-Encoding: gzip, chunked", end+hidden, 501),
		post("TE chunked, identity", "Transfer-Encoding: chunked, identity", end+hidden, 501),
		post("TE chunked, chunked", "Transfer-Encoding: chunked, chunked", end+hidden, 501),
		post("two TE", chunked+"@"+chunked, end+hidden, 501),
		post("two TE, the second odd", chunked+"@Transfer-Encoding: x", end+hidden, 501),
		post("two TE, the first odd", "Transfer-Encoding: x@"+chunked, end+hidden, 501),
		post("TE in capitals", "TRANSFER-ENCODING: CHUNKED", end+hidden, 200),
		post("TE with a tab", "Transfer-Encoding:\tchunked", end+hidden, 200),
		post("TE with a vertical tab", "Transfer-Encoding: \vchunked", end+hidden, 400),
		post("TE quoted", `Transfer-Encoding: "chunked"`, end+hidden, 501),
		post("TE with a blank before the colon", "Transfer-Encoding : chunked", end+hidden, 400),
		post("TE with a NUL", "Transfer-Encoding: chunked\x00", end+hidden, 400),
		post("TE with underscore in its name", "Transfer_Encoding: chunked@Content-Length: 3", "abc", 200, 200),
		post("TE empty", "Transfer-Encoding:@Content-Length: 3", "abc", 501),
		post("TE folded", "Transfer-Encoding:@ chunked", end+hidden, 200),
		post("TE behind a field that has a bare CR", "X: y\rTransfer-Encoding: chunked", end+hidden, 400),
		{"TE in HTTP/1.0", "POST /p HTTP/1.0@Host: a@" + chunked + "@@" + end + hidden, []int{200}},
		post("Connection names TE", chunked+"@Connection: Transfer-Encoding", "3@abc@"+end, 200),
		post("Connection names CL", "Content-Length: 3@Connection: Content-Length", "abc", 200, 200),
		// Chunks.
		post("chunk extension", chunked, "3;a=b@abc@0;x@@", 200),
		post("chunk extension with a bare LF", chunked, "3;a\nabc@"+end, 400),
		post("chunk size with plus", chunked, "+3@abc@"+end, 400),
		post("chunk size with minus", chunked, "-3@abc@"+end, 400),
		post("chunk size in 0x", chunked, "0x3@abc@"+end, 400),
		post("chunk size with an underscore", chunked, "0_3@abc@"+end, 400),
		post("chunk size beyond 64 bits", chunked, "10000000000000003@abc@"+end, 400),
		post("chunk size empty", chunked, "@abc@"+end, 400),
		post("chunk without its end", chunked, "3@abcX@"+end, 400),
		post("chunk ended by a bare LF", chunked, "3@abc\n"+end, 400),
		post("trailer with CL", chunked+"@Trailer: Content-Length", "0@Content-Length: 5@@", 400),
		post("trailer that was not announced", chunked, "0@X-Forwarded-For: 1.1.1.1@@", 200),
		// Lines.
		field("folded field", "X: a@ b: c", 200, 200),
		field("folded by a tab", "X: a@\tb: c", 200, 200),
		field("first field begins with a blank", " X: y", 400),
		field("bare LF between fields", "X: y\nZ: z", 200, 200),
		field("bare CR between fields", "X: y\rZ: z", 400),
		field("NUL in a value", "X: a\x00b", 400),
		field("no colon", "X", 400),
		field("empty name", ": x", 400),
		field("blank in a name", "X Y: z", 400),
		{"two Hosts", "GET /g HTTP/1.1@Host: a@Host: b@@", []int{400}},
		{"no Host", "GET /g HTTP/1.1@@", []int{400}},
		{"Host with a path", "GET /g HTTP/1.1@Host: a/hidden@@", []int{400}},
		{"Host with a blank", "GET /g HTTP/1.1@Host: a b@@", []int{400}},
		{"Host with a user", "GET /g HTTP/1.1@Host: a@@", []int{200, 200}},
		// The request line.
		line("absolute form", "GET http://b/g HTTP/1.1", 200, 200),
		line("absolute form without a path", "GET http://b?x HTTP/1.1", 200, 200),
		line("absolute form of another scheme", "GET ftp://b/g HTTP/1.1", 400, 200),
		line("absolute form with a user", "GET http://u:p@b/g HTTP/1.1", 400),
		line("no slash", "GET hidden HTTP/1.1", 400),
		line("a colon first", "GET :80/hidden HTTP/1.1", 400),
		line("a fragment", "GET /g#/hidden HTTP/1.1", 200, 200),
		line("a blank in the target", "GET /g /hidden HTTP/1.1", 400),
		line("a tab in the target", "GET /g\t/hidden HTTP/1.1", 400),
		line("two blanks", "GET  /g HTTP/1.1", 400),
		line("LF coded in the target", "GET /g%0d%0aX:%20y HTTP/1.1", 200, 200),
		line("malformed escape", "GET /g%zz HTTP/1.1", 400),
		line("HTTP/1.2", "GET /g HTTP/1.2", 200, 200),
		line("HTTP/2.0 in HTTP/1", "GET /g HTTP/2.0", 505),
		line("HTTP/0.9", "GET /g", 400),
		line("lower-case protocol", "GET /g http/1.1", 400),
		line("odd method", "GE(T /g HTTP/1.1", 400),
		line("CONNECT", "CONNECT b:443 HTTP/1.1", 405, 200),
		line("CONNECT to a path", "CONNECT /g HTTP/1.1", 405, 200),
		line("OPTIONS *", "OPTIONS * HTTP/1.1", 200, 200),
		line("GET *", "GET * HTTP/1.1", 400, 200),
		line("empty lines first", "@@GET /g HTTP/1.1", 400),
		// Switching protocols.
		field("Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings@Upgrade: h2c@HTTP2-Settings: AAMAAABkAAQAAP__", 200,
			200),
		field("Upgrade: h2c beside websocket", "Connection: Upgrade@Upgrade: websocket, h2c", 200, 200),
		field("two Upgrades", "Connection: Upgrade@Upgrade: websocket@Upgrade: h2c", 200, 200),
		field("Upgrade: TLS/1.0", "Connection: Upgrade@Upgrade: TLS/1.0", 200, 200),
		field("Upgrade that Connection does not name", "Upgrade: websocket", 200, 200),
		post("Upgrade with a body", "Connection: Upgrade@Upgrade: websocket@Content-Length: 33", hidden, 200, 200),
		// A body where nobody expects one.
		{"GET with a body", "GET /g HTTP/1.1@Host: a@Content-Length: 33@@" + hidden, []int{200, 200}},
		{"HEAD with a body", "HEAD /g HTTP/1.1@Host: a@Content-Length: 3@@abc", []int{200, 200}},
		post("Expect: 100-continue with the body at once", "Expect: 100-continue@Content-Length: 3", "abc", 100, 200,
			200),
		post("Expect: something else", "Expect: magic@Content-Length: 3", "abc", 417),
		{"pipelined", "GET /g HTTP/1.1@Host: a@@GET /g HTTP/1.1@Host: a@@", []int{200, 200, 200}},
	}
}

// Nothing reaches the upstream that the limits did not see, and what does has one meaning only.
func TestNothingIsSmuggled(t *testing.T) {
	if n := len(vectors()); n < 60 {
		t.Fatalf("only %d vectors", n)
	}
	for _, v := range vectors() {
		t.Run(v.name, func(t *testing.T) {
			up, l := record(t), always(plenty)
			p := open(t, l, func(_ *Config, o *Options) {
				o.Requests.Descriptors = []actions.Descriptor{{{Key: "path", Source: "path"}}}
			}, up.url)
			conn := testkit.Dial(t, p.addr)
			send := strings.ReplaceAll(v.send, "@", "\r\n") +
				"GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
			go func() { _, _ = io.WriteString(conn, send) }()
			if got := statuses(t, conn, v.send); !slices.Equal(got, v.want) {
				t.Errorf("statuses %v, want %v", got, v.want)
			}
			p.stop(testkit.Patience)
			up.mu.Lock()
			defer up.mu.Unlock()
			seen := l.seen("path")
			if len(up.paths) > len(l.requests) {
				t.Errorf("the upstream got %q, and the limits saw %q", up.paths, seen)
			}
			for _, path := range up.paths {
				if !slices.Contains(seen, path) {
					t.Errorf("%s was not seen, only %q", path, seen)
				}
			}
			checkPlain(t, up.raw.String())
			if s := p.Stats().Upstreams[0]; s.Broken+s.Connects+s.Timeouts > 0 {
				t.Errorf("the upstream is blamed: %+v", s)
			}
		})
	}
}

// statuses reads responses until the connection is closed.
func statuses(t *testing.T, conn net.Conn, send string) (all []int) {
	t.Helper()
	in := bufio.NewReader(conn)
	for {
		method := "GET"
		if len(all) == 0 && strings.HasPrefix(send, "HEAD") {
			method = "HEAD"
		}
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err == nil {
			all = append(all, resp.StatusCode)
			_, err = io.Copy(io.Discard, resp.Body)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("it hangs after %v", all)
		}
		if err != nil { // closed or reset
			return all
		}
	}
}

// checkPlain fails the test if requests that the proxy wrote can be read in two ways.
func checkPlain(t *testing.T, raw string) {
	t.Helper()
	for in := raw; in != ""; {
		head, rest, ended := strings.Cut(in, "\r\n\r\n")
		if !ended {
			t.Errorf("a header does not end: %q", in)
			return
		}
		lengths, coded := 0, 0
		for i, line := range strings.Split(head, "\r\n") {
			name, value, _ := strings.Cut(line, ": ")
			switch {
			case strings.ContainsAny(line, "\r\n\x00") || strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t"):
				t.Errorf("line %q", line)
			case i > 0 && strings.ContainsAny(name, " \t\v"):
				t.Errorf("field %q", line)
			case strings.EqualFold(name, "Content-Length"):
				lengths++
			case strings.EqualFold(name, "Transfer-Encoding"):
				if coded++; value != "chunked" {
					t.Errorf("field %q", line)
				}
			case strings.EqualFold(name, "Upgrade"):
				t.Errorf("field %q", line)
			}
		}
		if lengths+coded > 1 {
			t.Errorf("%d lengths and %d codings in %q", lengths, coded, head)
		}
		req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(in)))
		if err != nil {
			t.Errorf("%v in %q", err, in)
			return
		}
		if req.ContentLength > 0 {
			rest = rest[min(len(rest), int(req.ContentLength)):]
		} else if coded > 0 {
			_, after, found := strings.Cut(rest, "0\r\n\r\n")
			if _, err := io.Copy(io.Discard, req.Body); err != nil && found {
				t.Errorf("%v in %q", err, in)
			}
			rest = after
		}
		in = rest
	}
}
