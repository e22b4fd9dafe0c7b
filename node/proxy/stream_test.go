package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Each event reaches the client before the next one is made, whether the length of the body is known or not.
func TestEventsAreNotHeldBack(t *testing.T) {
	next := make(chan struct{})
	up := backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", "30")
		} else {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		for i := range 3 {
			fmt.Fprintf(w, "data: %02d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	for _, upstream := range []string{up, strings.Replace(up, "http:", "h2c:", 1)} {
		p := open(t, always(plenty), nil, upstream)
		for _, h2 := range []bool{false, true} {
			for _, path := range []string{"/", "/length"} {
				resp, err := clientOf(t, h2).Get(p.url + path)
				testkit.Must(t, err)
				buf := make([]byte, 10)
				for i := range 3 {
					if _, err := io.ReadFull(resp.Body, buf); err != nil ||
						string(buf) != fmt.Sprintf("data: %02d\n\n", i) {
						t.Fatalf("%s, HTTP/2 %v, event %d: %q, %v", path, h2, i, buf, err)
					}
					next <- struct{}{}
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}
	}
}

// Both directions stream at once, over each pair of protocols.
func TestFullDuplex(t *testing.T) {
	up := backend(t, func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		_ = c.EnableFullDuplex()
		_ = c.Flush()
		buf := make([]byte, 64)
		for {
			n, err := r.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			_ = c.Flush()
			if err != nil {
				return
			}
		}
	})
	for _, upstream := range []string{up, strings.Replace(up, "http:", "h2c:", 1)} {
		p := open(t, always(plenty), nil, upstream)
		for _, h2 := range []bool{false, true} {
			out, in := io.Pipe()
			r, _ := http.NewRequestWithContext(t.Context(), "POST", p.url, out)
			resp, err := clientOf(t, h2).Do(r)
			testkit.Must(t, err)
			buf := make([]byte, 5)
			for range 3 {
				fmt.Fprint(in, "hello")
				if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != "hello" {
					t.Fatalf("%s, HTTP/2 %v: %q, %v", upstream, h2, buf, err)
				}
			}
			_ = in.Close()
			if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
				t.Errorf("%q, %v", rest, err)
			}
			_ = resp.Body.Close()
		}
	}
}

// Trailers pass in both directions, announced or not.
func TestTrailers(t *testing.T) {
	up := backend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Announced")
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(b)
		w.Header().Set("Announced", r.Trailer.Get("Up"))
		w.Header().Set(http.TrailerPrefix+"Late", "late")
	})
	for _, upstream := range []string{up, strings.Replace(up, "http:", "h2c:", 1)} {
		p := open(t, always(plenty), nil, upstream)
		for _, h2 := range []bool{false, true} {
			r, _ := http.NewRequestWithContext(t.Context(), "POST", p.url, io.MultiReader(strings.NewReader("body")))
			r.Trailer = http.Header{"Up": {"up"}}
			resp, body := do(t, clientOf(t, h2), r)
			if body != "body" || resp.Trailer.Get("Announced") != "up" || resp.Trailer.Get("Late") != "late" {
				t.Errorf("%s, HTTP/2 %v: %q, %v", upstream, h2, body, resp.Trailer)
			}
		}
	}
}

func TestHEADAndRanges(t *testing.T) {
	content := strings.Repeat("0123456789", 1000)
	p := open(t, always(plenty), nil, backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/304" {
			w.Header().Set("ETag", `"x"`)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		http.ServeContent(w, r, "a.txt", time.Time{}, strings.NewReader(content))
	}))
	r, _ := http.NewRequestWithContext(t.Context(), "HEAD", p.url, nil)
	if resp, body := do(t, clientOf(t, false), r); resp.ContentLength != 10000 || body != "" {
		t.Errorf("HEAD: %v %q", resp.Header, body)
	}
	if resp, body := get(t, p.url, "Range", "bytes=5-9"); resp.StatusCode != 206 || body != "56789" ||
		resp.Header.Get("Content-Range") != "bytes 5-9/10000" {
		t.Errorf("range: %s %v %q", resp.Status, resp.Header, body)
	}
	if resp, body := get(t, p.url, "Range", "bytes=0-1,4-5"); resp.StatusCode != 206 || !strings.Contains(body, "45") {
		t.Errorf("ranges: %s %q", resp.Status, body)
	}
	if resp, body := get(t, p.url+"/304"); resp.StatusCode != 304 || body != "" || resp.Header.Get("ETag") != `"x"` ||
		resp.Header.Get("RateLimit") == "" {
		t.Errorf("%s %v %q", resp.Status, resp.Header, body)
	}
}

// A body that the upstream refuses before it was asked for is never sent, and nobody hangs.
func TestExpectContinue(t *testing.T) {
	p := open(t, always(plenty), nil, backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	}))
	// an upstream that is slow to refuse the body gets it
	p.upstreams[0].transport.(*http.Transport).ExpectContinueTimeout = testkit.Patience
	conn := testkit.Dial(t, p.addr)
	in := bufio.NewReader(conn)
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
	if line, err := in.ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	fmt.Fprint(conn, "abc")
	_, _ = in.ReadString('\n')
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	conn = testkit.Dial(t, p.addr)
	fmt.Fprint(conn, "POST /no HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != 403 || !resp.Close {
		t.Errorf("%v, %v", resp, err)
	}
}

// A client that waits with its body is told once to go on, however often the upstream says so.
func TestContinueComesOnce(t *testing.T) {
	p := open(t, always(plenty), nil, backend(t, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		const goOn = "HTTP/1.1 100 Continue\r\n\r\n"
		_, _ = io.WriteString(conn, goOn)
		_, _ = io.ReadFull(rw, make([]byte, 3)) // once it is here the client has been told
		_, _ = io.WriteString(conn, goOn+"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	}))
	conn := testkit.Dial(t, p.addr)
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\n"+
		"Content-Length: 3\r\n\r\n")
	in := bufio.NewReader(conn)
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != 100 {
		t.Fatal(resp, err)
	}
	fmt.Fprint(conn, "abc")
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != 200 || !resp.Close {
		t.Error(resp, err)
	}
}

// Early hints pass, and the final response still has its headers.
func TestEarlyHints(t *testing.T) {
	p := open(t, always(plenty), nil, backend(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
	}))
	hints := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code == 103 && h.Get("Link") != "" {
				hints++
			}
			return nil
		}})
	r, _ := http.NewRequestWithContext(ctx, "GET", p.url, nil)
	resp, _ := do(t, clientOf(t, false), r)
	if hints != 1 || resp.StatusCode != 200 || resp.Header.Get("RateLimit") == "" || p.Stats().Classes[2] != 1 {
		t.Errorf("%d hints, %s %v, %v", hints, resp.Status, resp.Header, p.Stats().Classes)
	}
}

// A connection that has to end after its response does so after early hints, too: what follows a chunked request may be
// no request.
func TestEarlyHintsDoNotKeepAlive(t *testing.T) {
	p := open(t, always(plenty), nil, backend(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
	}))
	conn := testkit.Dial(t, p.addr)
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"+
		"0\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\n\r\n")
	in := bufio.NewReader(conn)
	for _, want := range []int{http.StatusEarlyHints, http.StatusOK} {
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != want || resp.Close != (want == http.StatusOK) {
			t.Errorf("%+v, %v, want %d", resp, err, want)
		}
	}
	if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil {
		t.Errorf("the connection goes on: %q, %v", rest, err)
	}
}

// A body above the maximum gets 413, declared or not.
func TestMaxBody(t *testing.T) {
	p := open(t, always(plenty), func(c *Config, _ *Options) { c.MaxBodyBytes = 10 },
		backend(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	for _, h2 := range []bool{false, true} {
		for body, want := range map[string]int{"0123456789": 200, "01234567890": 413} {
			for _, declared := range []bool{false, true} {
				r, _ := http.NewRequestWithContext(t.Context(), "POST", p.url, strings.NewReader(body))
				if !declared {
					r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), -1
				}
				if resp, text := do(t, clientOf(t, h2), r); resp.StatusCode != want ||
					want == 413 && !strings.Contains(text, "larger than 10 bytes") {
					t.Errorf("HTTP/2 %v, %d bytes, declared %v: %s %s", h2, len(body), declared, resp.Status, text)
				}
			}
		}
	}
	if s := p.Stats().Upstreams[0]; s.Broken != 0 {
		t.Errorf("the upstream is blamed: %+v", s)
	}
}

// Headers above the maximum get 431.
func TestMaxHeader(t *testing.T) {
	p := open(t, always(plenty), func(c *Config, _ *Options) { c.MaxHeaderBytes = 1 << 10 },
		backend(t, func(http.ResponseWriter, *http.Request) {}))
	if resp, _ := get(t, p.url, "X-Long", strings.Repeat("x", 10<<10)); resp.StatusCode != 431 {
		t.Errorf("it gets %s", resp.Status)
	}
}

// zeros is an endless body; sum is what it adds up to.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// A large body passes in both directions, and takes no memory.
func TestLargeBodiesTakeNoMemory(t *testing.T) {
	size := int64(testkit.Tenth(2560)) << 20 / 10 // 256 MiB; 25 with the race detector
	sum := func(r io.Reader) (h hash.Hash, n int64) {
		h = sha256.New()
		n, _ = io.Copy(h, r)
		return h, n
	}
	want, _ := sum(io.LimitReader(zeros{}, size))
	p := open(t, always(plenty), nil, backend(t, func(w http.ResponseWriter, r *http.Request) {
		if h, n := sum(r.Body); n != size || !bytes.Equal(h.Sum(nil), want.Sum(nil)) {
			t.Errorf("%d bytes arrive", n)
		}
		_, _ = io.Copy(w, io.LimitReader(zeros{}, size))
	}))
	for _, h2 := range []bool{false, true} {
		var before, during runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r, _ := http.NewRequestWithContext(t.Context(), "POST", p.url, io.LimitReader(zeros{}, size))
		resp, err := clientOf(t, h2).Do(r)
		testkit.Must(t, err)
		runtime.ReadMemStats(&during)
		h, n := sum(resp.Body)
		_ = resp.Body.Close()
		if n != size || !bytes.Equal(h.Sum(nil), want.Sum(nil)) {
			t.Errorf("%d bytes come back", n)
		}
		if grown := int64(during.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
			t.Errorf("HTTP/2 %v: the heap grew by %d bytes", h2, grown)
		}
		if total := during.TotalAlloc - before.TotalAlloc; total > 64<<20 {
			t.Errorf("HTTP/2 %v: %d bytes were allocated for %d", h2, total, size)
		}
	}
}

// echoSocket is an upstream that echoes messages.
func echoSocket(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer c.CloseNow()
	for {
		kind, b, err := c.Read(r.Context())
		if err != nil || c.Write(r.Context(), kind, b) != nil {
			return
		}
	}
}

// The end of the drain also ends a WebSocket whose client reads nothing of what it is sent.
func TestStopEndsWebSocketsThatAreNotRead(t *testing.T) {
	stuck := make(chan struct{})
	p := open(t, always(plenty), nil, backend(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 \r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		for written := make([]byte, 1<<20); err == nil; {
			_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
			_, err = conn.Write(written)
		}
		close(stuck)
		_, _ = io.Copy(io.Discard, conn)
	}))
	conn := testkit.Dial(t, p.addr)
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	<-stuck
	stopped := make(chan struct{})
	go func() {
		p.stop(50 * time.Millisecond)
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-time.After(testkit.Patience):
		t.Error("it waits for ever")
		_ = conn.Close()
		<-stopped
	}
}

// A WebSocket outlives the timeouts of plain requests, is limited when it opens, and ends at the end of the drain.
func TestWebSocket(t *testing.T) {
	p := open(t, always(plenty), func(c *Config, _ *Options) {
		c.Timeouts = Timeouts{Idle: time.Second, Header: time.Second, Connect: testkit.Patience,
			FirstByte: testkit.Patience} // the header's has passed as well when the idle one has
	}, backend(t, echoSocket))
	c, resp, err := websocket.Dial(t.Context(), p.url, nil)
	testkit.Must(t, err)
	defer c.CloseNow()
	if resp.Header.Get("RateLimit") == "" {
		t.Errorf("headers %v", resp.Header)
	}
	echoes := func(text string) {
		t.Helper()
		testkit.Must(t, c.Write(t.Context(), websocket.MessageText, []byte(text)))
		if _, b, err := c.Read(t.Context()); err != nil || string(b) != text {
			t.Fatalf("%s comes back as %q, %v", text, b, err)
		}
	}
	echoes("one")
	idle := testkit.Dial(t, p.addr) // a plain connection shows when the idle timeout has passed
	fmt.Fprint(idle, "OPTIONS / HTTP/1.1\r\nHost: a\r\n\r\n")
	if _, err := io.Copy(io.Discard, idle); err != nil {
		t.Fatal(err)
	}
	echoes("two")
	if s := p.Stats(); s.WebSockets != 1 || len(p.limiter.requests) != 2 {
		t.Errorf("%+v, %d decisions", s, len(p.limiter.requests))
	}
	stopped := make(chan struct{})
	go func() {
		p.stop(50 * time.Millisecond)
		close(stopped)
	}()
	if _, _, err := c.Read(t.Context()); err == nil {
		t.Error("it stays open")
	}
	<-stopped
	if s := p.Stats(); s.WebSockets != 0 || s.Classes[1] != 1 {
		t.Errorf("after the end: %+v", s)
	}
}

// A stop waits for a WebSocket within the drain.
func TestStopWaitsForWebSockets(t *testing.T) {
	p := open(t, always(plenty), nil, backend(t, echoSocket))
	c, _, err := websocket.Dial(t.Context(), p.url, nil)
	testkit.Must(t, err)
	stopped := make(chan struct{})
	go func() {
		p.stop(testkit.Patience)
		close(stopped)
	}()
	testkit.Eventually(t, "the listener is closed", func() bool {
		conn, err := net.Dial("tcp", p.addr)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	if err := c.Write(t.Context(), websocket.MessageText, []byte("x")); err != nil {
		t.Error(err)
	}
	if _, b, err := c.Read(t.Context()); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	_ = c.CloseNow()
	<-stopped
}

// An upstream that switches protocols unasked gets no tunnel.
func TestUnaskedSwitch(t *testing.T) {
	p := open(t, always(plenty), nil, backend(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
			_ = conn.Close()
		}
	}))
	if resp, _ := get(t, p.url); resp.StatusCode != 502 {
		t.Errorf("it gets %s", resp.Status)
	}
}

// serveGRPC runs a gRPC server whose one method echoes a stream of strings, and sets a trailer.
func serveGRPC(t *testing.T) string {
	s := grpc.NewServer()
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "test.Echo", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Echo", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error {
				stream.SetTrailer(metadata.Pairs("sum", "done"))
				for {
					var in wrapperspb.StringValue
					if err := stream.RecvMsg(&in); errors.Is(err, io.EOF) {
						return nil
					} else if err != nil {
						return err
					}
					if in.Value == "fail" {
						return status.Error(codes.FailedPrecondition, "as asked")
					}
					if err := stream.SendMsg(&in); err != nil {
						return err
					}
				}
			}}}}, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return "h2c://" + l.Addr().String()
}

// A gRPC stream passes message by message, with its trailers and its status.
func TestGRPC(t *testing.T) {
	p := open(t, always(plenty), nil, serveGRPC(t))
	conn, err := grpc.NewClient(p.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	testkit.Must(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	for _, last := range []string{"", "fail"} {
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
			"/test.Echo/Echo")
		testkit.Must(t, err)
		for i := range 5 {
			in, out := wrapperspb.String(fmt.Sprint(i)), new(wrapperspb.StringValue)
			testkit.Must(t, stream.SendMsg(in))
			if err := stream.RecvMsg(out); err != nil || out.Value != in.Value {
				t.Fatalf("%v, %v", out, err)
			}
		}
		if last != "" {
			_ = stream.SendMsg(wrapperspb.String(last))
		} else {
			_ = stream.CloseSend()
		}
		err = stream.RecvMsg(new(wrapperspb.StringValue))
		if last == "" && err != io.EOF || last != "" && status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%q ends with %v", last, err)
		}
		header, _ := stream.Header()
		if got := stream.Trailer().Get("sum"); len(got) != 1 || got[0] != "done" || len(header.Get("ratelimit")) != 1 {
			t.Errorf("trailer %v, header %v", stream.Trailer(), header)
		}
	}
}

// A client that goes away takes its request with it, over both protocols; the upstream is not blamed.
func TestClientGoes(t *testing.T) {
	arrived, ended := make(chan struct{}), make(chan struct{})
	p := open(t, always(plenty), nil, backend(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	}))
	for i := range 4 {
		h2 := i%2 == 1
		ctx, cancel := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, "GET", p.url, nil)
		if i > 1 {
			r, _ = http.NewRequestWithContext(ctx, "POST", p.url, strings.NewReader("body"))
		}
		c := clientOf(t, h2)
		gone := make(chan error)
		go func() {
			resp, err := c.Do(r)
			if err == nil {
				_ = resp.Body.Close()
			}
			gone <- err
		}()
		<-arrived
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("HTTP/2 %v: %v", h2, err)
		}
		<-ended
	}
	p.stop(testkit.Patience)
	if s := p.Stats(); s.Classes[4] != 4 || s.Upstreams[0].Broken != 0 || strings.Contains(p.log.String(), "WARN") {
		t.Errorf("%+v, %s", s, p.log)
	}
}

// A response that breaks off does so for the client as well: it is never taken for a complete one.
func TestBrokenResponse(t *testing.T) {
	p := open(t, always(plenty), nil, backend(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	for _, h2 := range []bool{false, true} {
		resp, err := clientOf(t, h2).Get(p.url)
		testkit.Must(t, err)
		if b, err := io.ReadAll(resp.Body); err == nil || string(b) != "half" {
			t.Errorf("HTTP/2 %v: %q, %v", h2, b, err)
		}
		_ = resp.Body.Close()
	}
	if s := p.Stats(); s.Upstreams[0].Broken != 2 {
		t.Errorf("%+v", s.Upstreams)
	}
}

// A client that is slow with its header is closed; one that is slow with its body is not.
func TestSlowClients(t *testing.T) {
	p := open(t, always(plenty), func(c *Config, _ *Options) { c.Timeouts.Header = time.Second },
		backend(t, func(w http.ResponseWriter, r *http.Request) {
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n)
		}))
	body := testkit.Dial(t, p.addr)
	fmt.Fprint(body, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na")
	header := testkit.Dial(t, p.addr)
	fmt.Fprint(header, "GET / HTTP/1.1\r\n")
	if _, err := io.Copy(io.Discard, header); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a slow header is waited for")
	}
	fmt.Fprint(body, "b")
	if resp, err := http.ReadResponse(bufio.NewReader(body), nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("a slow body: %v, %v", resp, err)
	}
}

// An upstream that dies while both sides wait is a failure that the client sees at once.
func TestUpstreamDiesMidStream(t *testing.T) {
	up := backend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 5))
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
		panic(http.ErrAbortHandler)
	})
	for _, upstream := range []string{up, strings.Replace(up, "http:", "h2c:", 1)} {
		p := open(t, always(plenty), nil, upstream)
		for _, h2 := range []bool{false, true} {
			out, in := io.Pipe()
			r, _ := http.NewRequestWithContext(t.Context(), "POST", p.url, out)
			go func() { fmt.Fprint(in, "hello") }()
			resp, err := clientOf(t, h2).Do(r)
			testkit.Must(t, err)
			if resp.StatusCode != http.StatusBadGateway {
				t.Errorf("%s, HTTP/2 %v: %s", upstream, h2, resp.Status)
			}
			_ = resp.Body.Close()
			_ = in.Close()
		}
		if s := p.Stats(); s.Upstreams[0].Broken != 2 {
			t.Errorf("%+v", s)
		}
	}
}
