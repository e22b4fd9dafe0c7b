// Package dockertest is a machine with a Docker Engine that exists in memory: it understands the commands that package docker and its
// users give, changes its containers accordingly, and remembers what it was told.
package dockertest
