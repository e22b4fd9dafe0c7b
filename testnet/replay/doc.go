// Package replay answers what rules would have done to traffic that was: it asks the real engine (node/rules and counters.Table) about
// every request of an access log, at the time that the log gives it.
//
// # From lines to requests
//
// A line is in Apache's and nginx' common or combined format (with a virtual host in front or not), or a JSON object as Caddy, Traefik,
// nginx and Envoy write them; gzip is seen by itself. Each line is looked at, so that one log may hold several formats. What a line says of
// its request are fields: remote_address, path and so on ([Fields]). A descriptor is a list of fields, and is asked of the rules where the
// line has all of them. Unless the caller names descriptors, they are those that the rules can meet: for each rule the keys from the top of
// the tree to it, if all of them are fields.
//
// # Order
//
// Servers write a line when its request ends, and some give the time at which it began; several logs are several servers, or one that was
// rotated. Logs are merged by time, and the lines of each are sorted as far as [Window] lines reach. A request that comes later still is
// asked at the time of the one before it, for the engine's clock does not go back, and counted as late.
//
// # What it does not know
//
// A client that is denied comes back, or does not; the log has what it did when nobody denied it. All of the traffic is asked of one node,
// which is what a cluster without delay would decide. Costs are 1. A log that gives times to the second says nothing about limits of
// shorter windows: requests of one second come in the same instant.
//
// # Memory
//
// Two tables for each set of rules (what is decided, and what was asked for), a line at a time and the window's requests; of identities as
// many as [Options].MaxIdentities are told apart by name in the report. The decisions do not depend on that: they are the tables'.
package replay
