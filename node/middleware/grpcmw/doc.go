// Package grpcmw holds the calls of a Go program's own gRPC server against the limits of a node that runs in the same program. It is a
// package of its own so that who limits an HTTP server does not build gRPC.
//
// A call that is denied ends with ResourceExhausted and the details RetryInfo and QuotaFailure, and the handler is not called. What
// httpapi writes as headers (retry-after, ratelimit and so on) is in the trailers, beside grpc-retry-pushback-ms, which says when to come
// again, or that no wait helps: a client with a retry policy for RESOURCE_EXHAUSTED obeys it by itself, and needs no interceptor.
//
// All of it is in trailers, also of calls that pass, because a client tries again only after an answer that has nothing else: headers
// would take that from the errors of the handler too.
package grpcmw
