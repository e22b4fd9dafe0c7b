package evasion

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Field is a field of an HTTP/2 request as it is sent: nothing checks it.
type Field struct{ Name, Value string }

// Fields are the request's own in HTTP/2. A line that folds becomes a value with a line's end in it, which is
// malformed there.
func (v Variation) Fields() []Field {
	fields := []Field{{":method", v.Method}, {":scheme", "http"}, {":authority", v.Host}, {":path", v.Target}}
	for _, line := range v.Lines {
		if last := &fields[len(fields)-1]; line != "" && strings.ContainsAny(line[:1], " \t") {
			last.Value += "\r\n" + line
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		fields = append(fields, Field{strings.ToLower(name), strings.Trim(value, " \t")})
	}
	return fields
}

// HTTP2 is a request of HTTP/2 on a connection of its own, without TLS.
type HTTP2 struct {
	Fields []Field
	Body   []byte // nil: the request ends with its header
	Open   bool   // the body never ends
	Reset  bool   // the client resets the stream at once
}

// Send sends the request from an address of this machine; nil: any. It returns the status of the answer, and an error
// if the server ends the stream or the connection without one.
func (q HTTP2) Send(from net.Addr, addr string) (status int, err error) {
	conn, err := connect(from, addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, _ = conn.Write([]byte(http2.ClientPreface)) // a server that refuses answers all the same, or closes
	_ = framer.WriteSettings()
	q.write(framer)
	return readStatus(framer)
}

// write writes the frames of the request.
func (q HTTP2) write(framer *http2.Framer) {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range q.Fields {
		_ = encoder.WriteField(hpack.HeaderField{Name: f.Name, Value: f.Value})
	}
	const maxFrame = 16 << 10
	first := block.Next(maxFrame)
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: first,
		EndStream: q.Body == nil && !q.Open, EndHeaders: block.Len() == 0})
	for block.Len() > 0 {
		part := block.Next(maxFrame)
		_ = framer.WriteContinuation(1, block.Len() == 0, part)
	}
	if q.Body != nil {
		_ = framer.WriteData(1, !q.Open, q.Body)
	}
	if q.Reset {
		_ = framer.WriteRSTStream(1, http2.ErrCodeCancel)
		_ = framer.WritePing(false, [8]byte{}) // its answer shows that the server has read all of that
	}
}

var errReset = errors.New("the stream was reset")

// readStatus returns the final status of stream 1.
func readStatus(framer *http2.Framer) (int, error) {
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return 0, fmt.Errorf("no answer: %w", err)
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			status, err := strconv.Atoi(f.PseudoValue("status"))
			if err != nil || status >= 200 {
				return status, err
			}
		case *http2.RSTStreamFrame:
			return 0, fmt.Errorf("%w: %v", errReset, f.ErrCode)
		case *http2.GoAwayFrame:
			if f.LastStreamID < 1 || f.ErrCode != http2.ErrCodeNo {
				return 0, fmt.Errorf("%w: GOAWAY %v", errReset, f.ErrCode)
			}
		case *http2.PingFrame:
			if f.IsAck() {
				return 0, errReset
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = framer.WriteSettingsAck()
			}
		}
	}
}
