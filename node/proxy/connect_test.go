package proxy

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// openHTTP2 begins a connection of HTTP/2 without TLS, and returns the settings of the server.
func openHTTP2(t *testing.T, conn net.Conn) (*http2.Framer, map[http2.SettingID]uint32) {
	t.Helper()
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, framer.WriteSettings())
	frame, err := framer.ReadFrame()
	testkit.Must(t, err)
	settings := make(map[http2.SettingID]uint32)
	_ = frame.(*http2.SettingsFrame).ForeachSetting(func(s http2.Setting) error {
		settings[s.ID] = s.Val
		return nil
	})
	return framer, settings
}

// A WebSocket over HTTP/2 (RFC 8441) is not offered. A client that asks all the same loses its stream, not its
// connection, and nothing reaches the upstream.
func TestExtendedCONNECT(t *testing.T) {
	l := always(plenty)
	p := open(t, l, nil, backend(t, func(http.ResponseWriter, *http.Request) {}))
	framer, settings := openHTTP2(t, testkit.Dial(t, p.addr))
	if v, ok := settings[http2.SettingEnableConnectProtocol]; ok && v != 0 {
		t.Fatal("the proxy offers extended CONNECT: let it forward WebSockets then")
	}
	send := func(stream uint32, fields ...string) {
		t.Helper()
		var block bytes.Buffer
		enc := hpack.NewEncoder(&block)
		for i := 0; i < len(fields); i += 2 {
			_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(),
			EndHeaders: true, EndStream: stream > 1})
		testkit.Must(t, err)
	}
	send(1, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "a", ":path", "/chat",
		"sec-websocket-version", "13")
	send(3, ":method", "GET", ":scheme", "http", ":authority", "a", ":path", "/next")
	reset, answered := false, false
	for !reset || !answered {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("reset %v, the next request answered %v: %v", reset, answered, err)
		}
		switch f := frame.(type) {
		case *http2.RSTStreamFrame:
			if reset = true; f.StreamID != 1 || f.ErrCode != http2.ErrCodeProtocol {
				t.Errorf("stream %d ends with %v", f.StreamID, f.ErrCode)
			}
		case *http2.MetaHeadersFrame:
			if answered = true; f.StreamID != 3 || f.PseudoValue("status") != "200" {
				t.Errorf("stream %d gets %s", f.StreamID, f.PseudoValue("status"))
			}
		case *http2.GoAwayFrame:
			t.Fatalf("the connection ends: %v", f.ErrCode)
		}
	}
	if n := p.Stats().Upstreams[0].Requests; n != 1 || len(l.requests) != 1 {
		t.Errorf("%d requests reach the upstream, %d the limits", n, len(l.requests))
	}
}

// With GODEBUG=http2xconnect=1, which is of the whole process, such a request arrives: it gets the answer to CONNECT.
func TestExtendedCONNECTThatArrives(t *testing.T) {
	p := open(t, always(plenty), nil, "http://127.0.0.1:1")
	r := httptest.NewRequest("CONNECT", "/chat", nil)
	r.ProtoMajor, r.ProtoMinor, r.Proto = 2, 0, "HTTP/2.0"
	r.Header[":protocol"] = []string{"websocket"}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	if w.Code != 405 || p.Stats().Upstreams[0].Requests != 0 {
		t.Errorf("%d, %+v", w.Code, p.Stats().Upstreams[0])
	}
}
