package rlsapi_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// raw is a connection on which frames are written by hand.
type raw struct {
	net.Conn
	framer *http2.Framer
}

// greet begins to speak HTTP/2.
func greet(t *testing.T, conn net.Conn) *raw {
	t.Helper()
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	r := &raw{conn, http2.NewFramer(conn, conn)}
	r.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := r.framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return r
}

// begin sends the headers of a request, and no more.
func (r *raw) begin(t *testing.T, stream uint32, timeout string) {
	t.Helper()
	r.beginAt(t, stream, "/"+service+"/ShouldRateLimit", timeout)
}

func (r *raw) beginAt(t *testing.T, stream uint32, method, timeout string) {
	t.Helper()
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"grpc-timeout", timeout}} {
		if f[1] != "" {
			_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
	}
	if err := r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte(block.String()), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
}

// ended reads until the stream ends and returns its grpc-status, or the code of a reset.
func (r *raw) ended(t *testing.T, stream uint32) string {
	t.Helper()
	for {
		frame, err := r.framer.ReadFrame()
		if err != nil {
			return err.Error()
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				if f.StreamID == stream && h.Name == "grpc-status" {
					return h.Value
				}
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == stream {
				return f.ErrCode.String()
			}
		}
	}
}
