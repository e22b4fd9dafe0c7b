// Package accesslog reads access logs of Apache httpd and nginx in the common and the combined format, so that a cluster can be
// tried on real traffic:
//
//	addr ident user [02/Jan/2006:15:04:05 -0700] "GET /path HTTP/1.1" status bytes "referer" "agent"
//
// The common format ends after bytes. A log is written by a server but worded by its clients: whatever stands between quotes may
// be nonsense, and is kept as it is. What the server itself wrote has to be right.
package accesslog

import "time"

// Entry is one request of a log. A field that the log gives as "-", or does not have, is empty or zero.
//
// The strings share the memory of the line they were parsed from: strings.Clone those that are kept while most lines are not.
// They may hold any byte, for escapes are resolved.
type Entry struct {
	Addr   string    // the client: an IP address, or its name where the server looks names up
	User   string    // as authenticated, or as claimed
	Time   time.Time // to the second, in UTC
	Method string    // empty if the request line is not one of HTTP; Path is then all of it
	Path   string    // the request target, with its query
	Proto  string    // such as HTTP/1.1; empty for a simple request of HTTP/0.9 as well
	Status int       // three digits
	Bytes  int64     // of the response's body
	// Referer and Agent are what the combined format has in addition.
	Referer string
	Agent   string
}
