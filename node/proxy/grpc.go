package proxy

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/answer"
)

// isGRPC reports whether a request is a call of gRPC, whose client reads a status of gRPC in place of HTTP's.
func isGRPC(r *http.Request) bool {
	if r.ProtoMajor != 2 {
		return false
	}
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// grpcStatus returns the code of gRPC for a status of HTTP that the proxy answers itself. They are those of
// https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md but for
// denials, which are RESOURCE_EXHAUSTED rather than UNAVAILABLE, and requests that are wrong: INVALID_ARGUMENT rather
// than INTERNAL.
func grpcStatus(status int) string {
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusRequestEntityTooLarge:
		return "8" // RESOURCE_EXHAUSTED
	case status < 500:
		return "3" // INVALID_ARGUMENT
	}
	return "14" // UNAVAILABLE
}

// answer answers with a problem document, and a call of gRPC with the same as trailers alone.
func (x *exchange) answer(p *answer.Problem) {
	if !x.grpc {
		p.Write(x)
		return
	}
	h := x.Header()
	x.failed = p.Status
	h["Content-Type"], h["Grpc-Status"] = []string{"application/grpc"}, []string{grpcStatus(p.Status)}
	h["Grpc-Message"] = []string{url.PathEscape(p.Detail)}
	if v := counters.VerdictOf(x.layers); !v.Allowed {
		h["Grpc-Retry-Pushback-Ms"] = []string{
			strconv.FormatInt(x.proxy.headers.Pushback(v.Governing.RetryAfter), 10)}
	}
	x.WriteHeader(http.StatusOK)
}
