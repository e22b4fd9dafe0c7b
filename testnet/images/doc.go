// Package images makes the testnet's images on a machine that can pull none: each is FROM scratch, out of what Go compiles and what
// Debian has installed.
package images
