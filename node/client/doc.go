// Package client is for programs that live with limits: Client asks a node over HTTP, and Transport does what any
// server asks for that limits its clients: it waits as long as Retry-After says, and tries again.
//
// Waits are spread: many clients that were turned away together do not come back together. A wait that a server names
// is never cut short; one that nobody names is drawn evenly between nothing and a time that doubles with each attempt
// (full jitter, as in https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
package client
