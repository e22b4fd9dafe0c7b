package fleet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// door is an API of the nodes, and how a client asks it for many decisions at once.
type door struct {
	name  string
	depth int // decisions of a request
	// dial opens a connection to a node. ask sends a request for the clients from the n-th on and waits for its answer.
	dial func(ctx context.Context, n node, clients int) (ask func(n int) error, end func() error, err error)
}

// doors are those that take many decisions at once, and beside them what one at a time costs.
func doors() []door {
	resp := func(depth int) door {
		return door{fmt.Sprintf("Redis protocol, CL.THROTTLE, %d deep", depth), depth,
			dialRaw(func(n node) string { return n.resp }, depth, throttles, answersRESP)}
	}
	batch := func(depth int) door {
		return door{fmt.Sprintf("/v1/check/batch of %d", depth), depth,
			dialRaw(func(n node) string { return n.http }, depth, batchOf, answersHTTP)}
	}
	return []door{resp(1), resp(16), resp(64), batch(16), batch(64),
		{"ShouldRateLimit of 1 descriptor", 1, dialRLS(1)}, {"ShouldRateLimit of 16 descriptors", 16, dialRLS(16)}}
}

// prepared is how many requests a connection has ready: to write them costs the processors that it shares with the
// nodes next to nothing.
const prepared = 64

// dialRaw opens a plain connection that repeats prepared requests. answers reads all answers to one, which has to admit
// everything.
func dialRaw(addr func(node) string, depth int, request func(first, depth, clients int) []byte,
	answers func(in *bufio.Reader, depth int) error,
) func(context.Context, node, int) (func(int) error, func() error, error) {
	return func(ctx context.Context, n node, clients int) (func(int) error, func() error, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr(n))
		if err != nil {
			return nil, nil, err
		}
		var requests [prepared][]byte
		for i := range requests {
			requests[i] = request(n.number+i*depth*7, depth, clients)
		}
		in := bufio.NewReaderSize(conn, 64<<10)
		return func(n int) error {
			if err := conn.SetDeadline(time.Now().Add(askTimeout)); err != nil {
				return err
			}
			if _, err := conn.Write(requests[n%prepared]); err != nil {
				return err
			}
			return answers(in, depth)
		}, conn.Close, nil
	}
}

// client is the name of the n-th of the clients.
func client(n, clients int) string { return "door-" + strconv.Itoa(n%clients) }

// throttles are commands of the Redis protocol, each with a limit that nobody reaches.
func throttles(first, depth, clients int) (b []byte) {
	for i := range depth {
		key := client(first+i, clients)
		b = fmt.Appendf(b, "*5\r\n$11\r\nCL.THROTTLE\r\n$%d\r\n%s\r\n$8\r\n99999999\r\n$9\r\n100000000\r\n$2\r\n60\r\n",
			len(key), key)
	}
	return b
}

var errNotAdmitted = errors.New("a request was not admitted")

// answersRESP reads an array of five integers for each command, the first of them 0.
func answersRESP(in *bufio.Reader, depth int) error {
	for range depth {
		for i := range 6 {
			line, err := in.ReadSlice('\n')
			if err != nil {
				return err
			}
			if i == 1 && line[1] != '0' || i == 0 && line[0] != '*' {
				return fmt.Errorf("%w: %q", errNotAdmitted, line)
			}
		}
	}
	return nil
}

// batchOf is a request to /v1/check/batch.
func batchOf(first, depth, clients int) []byte {
	body := []byte(`{"checks":[`)
	for i := range depth {
		if i > 0 {
			body = append(body, ',')
		}
		body = fmt.Appendf(body, `{"rule":"small","identity":"%s"}`, client(first+i, clients))
	}
	body = append(body, "]}"...)
	return fmt.Appendf(nil, "POST /v1/check/batch HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body)
}

var allowed = []byte(`"allowed":true`)

// answersHTTP reads a response.
func answersHTTP(in *bufio.Reader, depth int) error {
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if got := bytes.Count(body, allowed); got != depth || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s, %d of %d allowed: %.200q", errNotAdmitted, resp.Status, got, depth, body)
	}
	return nil
}

// dialRLS opens a gRPC connection that asks with so many descriptors at once: each is a decision.
func dialRLS(depth int) func(context.Context, node, int) (func(int) error, func() error, error) {
	return func(_ context.Context, n node, clients int) (func(int) error, func() error, error) {
		conn, err := grpc.NewClient(n.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, nil, err
		}
		var requests [prepared]*rls.RateLimitRequest
		for i := range requests {
			requests[i] = &rls.RateLimitRequest{Domain: "fleet"}
			for j := range depth {
				entry := &common.RateLimitDescriptor_Entry{Key: smallRule, Value: client(n.number+i*depth*7+j, clients)}
				requests[i].Descriptors = append(requests[i].Descriptors, &common.RateLimitDescriptor{
					Entries: []*common.RateLimitDescriptor_Entry{entry}})
			}
		}
		service := rls.NewRateLimitServiceClient(conn)
		return func(n int) error {
			ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
			defer cancel()
			answer, err := service.ShouldRateLimit(ctx, requests[n%prepared])
			if err == nil && (answer.OverallCode != rls.RateLimitResponse_OK || len(answer.Statuses) != depth) {
				err = fmt.Errorf("%w: %v", errNotAdmitted, answer.OverallCode)
			}
			return err
		}, conn.Close, nil
	}
}
