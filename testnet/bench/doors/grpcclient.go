package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// grpcConns is how many connections the clients share: as many as Envoy opens on two cores, one for each of its threads.
const grpcConns = 2

// connectGRPC opens the connections, and shares them out among n clients.
func connectGRPC(ctx context.Context, addr string, n, _ int) (all []client, err error) {
	var conns []*grpcConn
	for range grpcConns {
		c, err := newGRPCConn(ctx, addr)
		if err != nil {
			return nil, errors.Join(err, disconnect(all))
		}
		conns = append(conns, c)
		all = append(all, &grpcClient{conn: c, owner: true, done: make(chan error, 1)})
	}
	for i := len(all); i < n; i++ {
		all = append(all, &grpcClient{conn: conns[i%grpcConns], done: make(chan error, 1)})
	}
	return all, nil
}

// tooLate is the status DEADLINE_EXCEEDED.
const tooLate = "4"

// grpcConn is a connection of HTTP/2, with no more of it than many short calls take. grpc-go's own client would take more of the machine
// than the server that is measured.
type grpcConn struct {
	net.Conn
	framer  *http2.Framer
	decoder *hpack.Decoder
	wake    chan struct{} // something is to be written
	gone    chan struct{} // closed by the reader at its end

	mu      sync.Mutex
	out     bytes.Buffer // frames to be written
	write   *http2.Framer
	header  bytes.Buffer
	encoder *hpack.Encoder
	next    uint32
	calls   map[uint32]*grpcClient
	failed  error
}

// grpcClient has one call at a time.
type grpcClient struct {
	conn   *grpcConn
	owner  bool // it closes the connection
	done   chan error
	answer []byte
	status string
}

func newGRPCConn(ctx context.Context, addr string) (*grpcConn, error) {
	conn, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	c := &grpcConn{Conn: conn, framer: http2.NewFramer(io.Discard, conn), wake: make(chan struct{}, 1), gone: make(chan struct{}), next: 1, calls: make(map[uint32]*grpcClient)}
	c.write, c.encoder = http2.NewFramer(&c.out, nil), hpack.NewEncoder(&c.header)
	c.out.WriteString(http2.ClientPreface)
	const window = 1 << 30
	err = errors.Join(c.write.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}), c.write.WriteWindowUpdate(0, window))
	go c.writeAll()
	go c.readAll()
	c.wake <- struct{}{}
	return c, err
}

// writeAll writes what has come together since the last time, until the connection ends.
func (c *grpcConn) writeAll() {
	var out bytes.Buffer
	for {
		select {
		case <-c.wake:
		case <-c.gone:
			return
		}
		c.mu.Lock()
		out.Reset()
		_, _ = out.Write(c.out.Bytes())
		c.out.Reset()
		c.mu.Unlock()
		if _, err := c.Write(out.Bytes()); err != nil {
			c.fail(err)
			return
		}
	}
}

func (c *grpcConn) flush() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// readAll ends the calls whose answers come.
func (c *grpcConn) readAll() {
	defer close(c.gone)
	var call *grpcClient
	c.decoder = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == "grpc-status" && call != nil {
			call.status = f.Value
		}
	})
	read := 0
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			c.fail(err)
			return
		}
		c.mu.Lock()
		call = c.calls[frame.Header().StreamID]
		switch f := frame.(type) {
		case *http2.DataFrame:
			if call != nil {
				call.answer = append(call.answer, f.Data()...)
			}
			if read += int(f.Length); read > 1<<20 {
				_ = c.write.WriteWindowUpdate(0, uint32(read))
				read = 0
				c.flush()
			}
		case *http2.HeadersFrame:
			if _, err := c.decoder.Write(f.HeaderBlockFragment()); err != nil || !f.HeadersEnded() {
				err = errors.Join(err, fmt.Errorf("headers of %d bytes that are not whole", f.Length))
				c.mu.Unlock()
				c.fail(err)
				return
			}
			if f.StreamEnded() && call != nil {
				delete(c.calls, f.StreamID)
				call.done <- nil
			}
		case *http2.RSTStreamFrame:
			if call != nil {
				delete(c.calls, f.StreamID)
				call.done <- fmt.Errorf("the call was reset: %v", f.ErrCode)
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = c.write.WriteSettingsAck()
				c.flush()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = c.write.WritePing(true, f.Data)
				c.flush()
			}
		}
		c.mu.Unlock()
	}
}

// fail ends all calls with an error.
func (c *grpcConn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
	for id, call := range c.calls {
		delete(c.calls, id)
		call.done <- err
	}
	_ = c.Conn.Close()
}

func (c *grpcClient) Close() error {
	if !c.owner {
		return nil
	}
	err := c.conn.Conn.Close()
	<-c.conn.gone
	return err
}

func (c *grpcClient) ask(n int) error {
	body, err := proto.Marshal(&rls.RateLimitRequest{
		Domain: "edge", Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "remote_address", Value: who(n)}}}},
	})
	if err != nil {
		return err
	}
	for c.status = tooLate; c.status == tooLate; { // the machine was too busy for the deadline
		c.answer, c.status = c.answer[:0], ""
		if err := c.conn.call(c, body); err != nil {
			return err
		}
		if err := <-c.done; err != nil {
			return err
		}
	}
	// A message of five bytes of head, whose first field is the overall code.
	if admitted := []byte{0x08, byte(rls.RateLimitResponse_OK)}; c.status != "0" || len(c.answer) < 7 || !bytes.Equal(c.answer[5:7], admitted) {
		return fmt.Errorf("%w: status %q, %x", errLimited, c.status, c.answer)
	}
	return nil
}

// call sends a call's frames.
func (c *grpcConn) call(from *grpcClient, body []byte) error {
	message := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
	message = append(message, body...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return c.failed
	}
	id := c.next
	c.next += 2
	c.calls[id] = from
	c.header.Reset()
	for _, f := range [...]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: rls.RateLimitService_ShouldRateLimit_FullMethodName},
		{Name: ":authority", Value: "node"}, {Name: "te", Value: "trailers"}, {Name: "content-type", Value: "application/grpc"},
		{Name: "grpc-timeout", Value: "1S"},
	} {
		if err := c.encoder.WriteField(f); err != nil {
			return err
		}
	}
	err := errors.Join(
		c.write.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.header.Bytes(), EndHeaders: true}),
		c.write.WriteData(id, true, message))
	c.flush()
	return err
}
